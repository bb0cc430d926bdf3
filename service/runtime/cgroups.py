"""What control groups leave of the machine: CPU quotas, cpusets and memory, of both versions.

A container sees its own group at the root of the mount; a systemd unit, or a container without a
namespace of its own, finds its group's path in `/proc/self/cgroup`. Every group above binds too, so
all of them are asked and the tightest counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_CPUSETS = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
"""Version 2, version 1, and version 1 where the kernel does not report the effective value."""
_MEMORY = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""The limit, the use, and the part of it that caches files; version 2 and version 1."""


def granted_cores(root: Path = Path("/")) -> int | None:
    """Whole cores that the groups of this process grant it; None if they set no limit."""
    limits: list[float] = []
    for group in _groups(root):
        limits += [limit for limit in (_quota_v2(group), _quota_v1(group)) if limit is not None]
        cpuset = _cpuset(group)
        if cpuset is not None:
            limits.append(cpuset)
    return max(1, int(min(limits))) if limits else None


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Cores' worth of time that the tightest quota leaves; None if there is none.

    Below one, the kernel stops the process for the rest of each period (0.1 s) once its share is
    used up: latency then has two modes, tens of milliseconds apart.
    """
    found = (quota for group in _groups(root) for quota in (_quota_v2(group), _quota_v1(group)))
    return min((quota for quota in found if quota is not None), default=None)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes that the tightest group allows; None if none does."""
    return min((limit for limit, _ in _memory(root)), default=None)


def memory_room(root: Path = Path("/")) -> int | None:
    """Bytes that can still be taken before a group is full; None if none sets a limit."""
    return min((max(0, limit - used) for limit, used in _memory(root)), default=None)


def _memory(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use of every group that has a limit; pages of files can be dropped any time."""
    for group in _groups(root):
        for limit, used, dropped in _MEMORY:
            text = _read(group / limit).strip()
            # Version 1 writes "no limit" as the largest number it can.
            if text.isdigit() and int(text) < 1 << 60:
                facts = dict(line.split() for line in _read(group / "memory.stat").splitlines())
                yield (
                    int(text),
                    int(_read(group / used).strip() or 0) - int(facts.get(dropped, 0)),
                )


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the groups this process is in, from the mounts down; they need not exist."""
    mount = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines() or ["0::/"]:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        # Version 1 mounts controllers one by one or in pairs; version 2 has no name for its tree.
        names = {controllers, *controllers.split(",")} if controllers else {"", "unified"}
        for name in sorted(names):
            folder = mount / name
            yield folder
            for part in path.strip("/").split("/"):
                if part in ("", ".."):
                    break
                folder = folder / part
                yield folder


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _share(quota: str, period: str) -> float | None:
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return cores if cores > 0 else None


def _quota_v2(group: Path) -> float | None:
    """`max 100000`, or a quota and a period."""
    quota, period = (*_read(group / "cpu.max").split(), "", "")[:2]
    return _share(quota, period)


def _quota_v1(group: Path) -> float | None:
    """-1 stands for no limit."""
    return _share(_read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us"))


def _cpuset(group: Path) -> int | None:
    """How many CPUs a list such as `0-3,8` names; an empty one leaves it to the group above."""
    for name in _CPUSETS:
        text = _read(group / name).strip()
        if text:
            try:
                return sum(_width(span) for span in text.split(","))
            except ValueError:
                return None
    return None


def _width(span: str) -> int:
    first, _, last = span.partition("-")
    return int(last or first) - int(first) + 1
