"""Taking turns with other processes on this host."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

_POLL_S = 0.05


def _open(directory: Path) -> IO[bytes]:
    directory.mkdir(parents=True, exist_ok=True)
    return (directory / "turn").open("wb")


@contextlib.asynccontextmanager
async def turn(directory: Path | None) -> AsyncIterator[None]:
    """Wait until no other service that has this directory loads or measures.

    Times are true on a host where one process measures. Without a directory that can be written,
    nothing waits.
    """
    with contextlib.ExitStack() as stack:
        if directory is not None:
            with contextlib.suppress(OSError):
                file = stack.enter_context(_open(directory))
                while True:
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        await asyncio.sleep(_POLL_S)
        yield  # closing the file ends the turn
