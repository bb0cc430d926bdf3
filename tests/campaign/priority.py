"""Attackers share the service's cores here; real ones have computers of their own.

What an attacker computes must not count as harm. So it gets what nobody else wants of a core: a
process of the service, or the polite client, that wakes up takes the core from it at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")


@contextmanager
def idle_priority() -> Iterator[None]:
    """While it lasts this process gets only what is left of the cores.

    Its threads are of the idle class. Linux shares time between sessions or groups first, where a
    thread's class has no say: so it leaves its session's for an idle group if it may make one, and
    is the nicest session if it may not.
    """
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")
    own = _own_group()
    group = own / f"san-attacker-{os.getpid()}"
    with suppress(OSError):
        group.mkdir()
        (group / "cpu.idle").write_text("1")
        (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        with suppress(OSError):
            (own / "cgroup.procs").write_text(str(os.getpid()))
        with suppress(OSError):
            group.rmdir()


def _own_group() -> Path:
    """The control group that shares out this process's time."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return _GROUPS / "cpu" / path.lstrip("/")
    return _GROUPS / path.lstrip("/")  # version 2 has one line
