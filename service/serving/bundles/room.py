"""How much memory networks may take: of the container's limit, not of the machine's memory.

A swap has two bundles in memory for a while. So the cache leaves room for a second one, and a swap
that would not fit is refused before it is begun: the kernel would end the process in the middle.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from service.engines.base import Engine, room_bytes
from service.errors import ReloadError
from service.runtime.cgroups import memory_limit, memory_room
from service.runtime.memory import trim
from service.serving.bundles.deployment import Deployment
from service.settings import MEGA, Settings

_PROCESS = 350 * MEGA
"""Bytes of a process without networks: libraries, helpers, bodies; measured as 200 MB when idle."""
_NETWORKS = 0.6
"""Share of the rest for the networks that serve; a swap begins with fewer and has the other."""
_LEAST = 64 * MEGA
_BUILDING = 100 * MEGA
"""Bytes that building takes for a moment."""
_FIRST = 3
"""Networks that a bundle needs to serve at all."""
_COPIES = 3
"""Of a bundle's file: as read, and as what networks are generated from."""


def capacity(settings: Settings, engine: Engine, held: int = 0) -> int:
    """What ready networks may occupy: as set, but no more than the device, or the limit, allows.

    They occupy `held` bytes now.
    """
    wanted, room = settings.cache_megabytes * MEGA, room_bytes(engine)
    if room is not None:
        return min(wanted, held + room)
    limit = memory_limit()
    if limit is None:
        return wanted
    return min(wanted, max(_LEAST, int(_NETWORKS * (limit // settings.workers - _PROCESS))))


async def room_beside(serving: Deployment, path: Path) -> int | None:
    """Bytes for a second bundle's networks, None: no limit; raises if not even the first ones fit.

    What clients pinned goes first: it is built again when it is asked for.
    """
    room = memory_room()
    if room is None:
        return None
    size = await asyncio.to_thread(_size, path)
    on_host = room_bytes(serving.engine) is None
    sizes = sorted((x.memory_bytes for x in serving.cache.entries()), reverse=True)
    fixed = _BUILDING + _COPIES * size
    needed = fixed + (sum(sizes[:_FIRST]) if on_host else 0)
    if room < needed:
        serving.cache.drop_guests()
        await asyncio.to_thread(trim)
        room = memory_room() or 0
    if room < needed:
        raise ReloadError(
            f"A second bundle needs about {needed // MEGA} MB beside the one that serves, and "
            f"{room // MEGA} MB are left of the {(memory_limit() or 0) // MEGA} MB that this "
            "container may take. Give it more, or lower SAN_CACHE_MEGABYTES."
        )
    return room - fixed if on_host else None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # reading it will tell the reason
