"""What happens to a service from below: killed and stopped workers, full disks, little memory.

Each fault has a service of its own. Groups and mounts need root; clock jumps need a C compiler.
"""

from __future__ import annotations

import http.client
import multiprocessing
import os
import random
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.driving.arrivals import Arrivals, schedule
from benchmarks.driving.open_loop import capacity, open_loop
from benchmarks.driving.photo import photo
from benchmarks.servers.bundles import new_version
from benchmarks.servers.our_service import OurService, classify
from benchmarks.servers.processes import family
from san_core.bundle import DEFAULT_BUNDLE
from tests.campaign.processes import begin, started_attacker
from tests.campaign.wire import ATTACKER, WIRE, post

_MEGA = 1_000_000
_GROUPS = Path("/sys/fs/cgroup")
_V2 = (_GROUPS / "cgroup.controllers").exists()
_LIMIT, _PEAK, _KILLS = (
    ("memory.max", "memory.peak", "memory.events")
    if _V2
    else ("memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control")
)
_DAY = 86_400
_LONGEST_ATTACK_S = 90.0
_COMPLETE_S = 20.0
"""How long a service may take to complete its frontier; 1 GB has no room for all of it."""


WORKER_ENDED = " and is replaced"
"""What the supervisor logs of a worker that ended unasked."""


@dataclass
class Setting:
    """A service in its surroundings; undone when the fault is over."""

    stack: ExitStack
    options: list[str] = field(default_factory=list)
    prefix: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    killed_for_memory: int = 0
    folder: Path = Path()
    bundle: Path = Path()
    """The one that is served, if it is to be replaced."""
    group: Path | None = None


@dataclass(frozen=True)
class Fault:
    """One of them."""

    prepare: Callable[[Setting], None]
    act: Callable[[OurService, Setting, float], None]
    """Until a moment of `time.monotonic()`."""
    seconds: float = 15.0
    ends_a_worker: bool = False
    """What the worker holds is lost with it."""


@contextmanager
def started(fault: Fault) -> Iterator[tuple[OurService, Setting]]:
    """The service that the fault happens to."""
    with ExitStack() as stack:
        setting = Setting(stack)
        setting.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fault.prepare(setting)
        server = OurService(options=setting.options)
        server._command = [*setting.prefix, *server._command]
        stack.callback(server.stop)
        server.start()
        server.await_ready(_COMPLETE_S)
        yield server, setting


def _workers(pid: int) -> list[int]:
    """The worker processes: children that are neither a helper nor Python's own."""
    found = []
    for one in family(pid)[1:]:
        with suppress(OSError):
            if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes():
                found.append(one)
    return found


def two_workers(setting: Setting) -> None:
    setting.options += ["--workers", "2"]


def kill_at_70_percent(server: OurService, setting: Setting, end: float) -> None:
    """Kill -9 of a worker every 12 seconds, at 70 % of what the service can do."""
    request = classify(photo(), budget_ms=50)
    rate = 0.7 * capacity(server.port, [request])
    setting.notes.append(f"{rate:.0f} requests/s")
    times = schedule(Arrivals.POISSON, rate, max(1.0, end - time.monotonic()), 1)
    load = multiprocessing.get_context("spawn").Process(
        target=open_loop, args=(server.port, times, [request]), kwargs={"source": ATTACKER}
    )
    load.start()
    killed = 0
    while time.monotonic() < end - 6:
        time.sleep(6)
        os.kill(random.Random(killed).choice(_workers(server.pid)), signal.SIGKILL)
        killed += 1
        time.sleep(6)
    load.join()
    setting.notes.append(f"{killed} killed")


def stop_a_worker(server: OurService, setting: Setting, end: float) -> None:
    """SIGSTOP of one of two."""
    time.sleep(2)
    stopped = _workers(server.pid)[0]
    os.kill(stopped, signal.SIGSTOP)
    time.sleep(max(0.0, end - time.monotonic()))
    gone = stopped not in _workers(server.pid)
    setting.notes.append("replaced" if gone else "not replaced")
    if not gone:
        os.kill(stopped, signal.SIGCONT)


def _mounted(setting: Setting, size_mb: int) -> Path:
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", setting.folder], check=True
    )
    setting.stack.callback(subprocess.run, ["umount", "-l", setting.folder], check=False)
    (setting.folder / "cache").mkdir()
    setting.options += ["--cache-dir", str(setting.folder / "cache"), "--workers", "2"]
    setting.prefix = ["env", f"TMPDIR={setting.folder}"]
    return setting.folder


def small_disk(setting: Setting) -> None:
    bundle_of_ones_own(setting)
    _mounted(setting, 200)


def fill_the_disk(server: OurService, setting: Setting, end: float) -> None:
    """Cache and temporary folder full, with scrapes and a swap."""
    with suppress(OSError), (setting.folder / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(65536))
    _ask_around(server, setting, end)


def make_it_read_only(server: OurService, setting: Setting, end: float) -> None:
    """Cache and temporary folder turned read-only, with scrapes and a swap."""
    subprocess.run(["mount", "-o", "remount,ro", setting.folder], check=True)
    _ask_around(server, setting, end)
    subprocess.run(["mount", "-o", "remount,rw", setting.folder], check=True)


def _ask_around(server: OurService, setting: Setting, end: float) -> None:
    swapped = 0
    while time.monotonic() < end:
        server.ask("/version")
        subprocess.run(["curl", "-s", f"http://127.0.0.1:{server.port}/metrics"], stdout=-3)
        if not swapped:
            new_version(setting.bundle, "2")
            swapped = post(server.port, b"", "/admin/reload")
        time.sleep(0.5)
    setting.notes.append(f"reload {swapped}")


def few_descriptors(setting: Setting) -> None:
    setting.prefix = ["prlimit", "--nofile=64:64"]


def open_connections(server: OurService, _: Setting, end: float) -> None:
    """64 file descriptors, and a client that opens as many connections as it gets."""
    WIRE["idle connections"](server.port, end)


def faked_clock(setting: Setting) -> None:
    clock, library = setting.folder / "clock", setting.folder / "clock.so"
    clock.write_bytes(struct.pack("q", 0))
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    setting.prefix = ["env", f"LD_PRELOAD={library}", f"SAN_CLOCK={clock}"]


def turn_the_clock(server: OurService, setting: Setting, end: float) -> None:
    """The wall clock a day forth, two back, ten years forth, every two seconds."""
    seen = set()
    with (setting.folder / "clock").open("r+b", buffering=0) as clock:
        while time.monotonic() < end:
            for days in (1, -1, 3650, 0):
                clock.seek(0)
                clock.write(struct.pack("q", days * _DAY))
                time.sleep(2)
                seen.add(_year_by(server))
    setting.notes.append(f"the service's clock showed the years {sorted(seen)}")


def _year_by(server: OurService) -> str:
    """The year in the Date header of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", "/healthz")
    date = connection.getresponse().headers["date"] or "? ? ? ?"
    connection.close()
    return date.split()[3]


def bundle_of_ones_own(setting: Setting) -> None:
    folder = setting.stack.enter_context(tempfile.TemporaryDirectory())
    setting.bundle = Path(shutil.copy(DEFAULT_BUNDLE, folder))
    setting.options += ["--bundle", str(setting.bundle)]


def replace_by_garbage(server: OurService, setting: Setting, end: float) -> None:
    """The bundle overwritten in place, and swaps asked for."""
    rng, seen = random.Random(1), set()
    while time.monotonic() < end:
        setting.bundle.write_bytes(rng.randbytes(1_000_000))
        seen.add(post(server.port, b"", "/admin/reload"))
        os.kill(server.pid, signal.SIGHUP)
        time.sleep(1)
    setting.notes.append(f"reload {sorted(seen)}")


def replace_by_others(server: OurService, setting: Setting, end: float) -> None:
    """Another bundle in the same place, and swaps asked for, twice a second."""
    seen: Counter[int] = Counter()
    version = 0
    while time.monotonic() < end:
        version += 1
        new_version(setting.bundle, str(version))
        seen[post(server.port, b"", "/admin/reload")] += 1
        time.sleep(0.5)
    setting.notes.append(f"reload {dict(seen)}")


def _limited(setting: Setting, limit_mb: int) -> None:
    parent = _GROUPS if _V2 else _GROUPS / "memory"
    group = parent / f"san-campaign-{os.getpid()}-{limit_mb}"
    group.mkdir()
    setting.stack.callback(_remove, group)
    (group / _LIMIT).write_text(str(limit_mb * _MEGA))
    setting.group = group
    setting.prefix = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]


def _remove(group: Path) -> None:
    for _ in range(50):
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.1)
        else:
            return


def one_gigabyte(setting: Setting) -> None:
    bundle_of_ones_own(setting)
    _limited(setting, 1000)


def four_gigabytes_two_workers(setting: Setting) -> None:
    bundle_of_ones_own(setting)
    _limited(setting, 4000)
    setting.options += ["--workers", "2"]


def swap_within_the_limit(server: OurService, setting: Setting, end: float) -> None:
    """Pins and large images from one client, and the bundle swapped meanwhile, twice each way."""
    attackers = [
        started_attacker(server.port, attack, max(0.0, end - time.monotonic()), 1)
        for attack in ("pins of all resolutions", "webp within limits")
    ]
    for attacker in attackers:
        begin(attacker)
    seen = []
    for swap in range(2):
        time.sleep(2)
        new_version(setting.bundle, f"{swap}a")
        seen.append(post(server.port, b"", "/admin/reload"))
        new_version(setting.bundle, f"{swap}b")
        os.kill(server.pid, signal.SIGHUP)
        time.sleep(5)
    for attacker in attackers:
        attacker.communicate(timeout=_LONGEST_ATTACK_S)
    assert setting.group is not None
    peak = int((setting.group / _PEAK).read_text()) // _MEGA
    kills = dict(line.split() for line in (setting.group / _KILLS).read_text().splitlines())
    setting.killed_for_memory = int(kills["oom_kill"])
    setting.notes.append(f"reload {seen}, peak {peak} MB with files")


FAULTS: dict[str, Fault] = {
    "kill -9 at 70 % load": Fault(two_workers, kill_at_70_percent, 120.0, ends_a_worker=True),
    "a worker is stopped": Fault(two_workers, stop_a_worker, 30.0, ends_a_worker=True),
    "disk full": Fault(small_disk, fill_the_disk),
    "read-only": Fault(small_disk, make_it_read_only),
    "64 file descriptors": Fault(few_descriptors, open_connections),
    "clock jumps": Fault(faked_clock, turn_the_clock),
    "bundle of garbage": Fault(bundle_of_ones_own, replace_by_garbage),
    "bundle that changes": Fault(bundle_of_ones_own, replace_by_others),
    "1 GB": Fault(one_gigabyte, swap_within_the_limit),
    "4 GB, two workers, swaps": Fault(four_gigabytes_two_workers, swap_within_the_limit, 30.0),
}
