"""The processes that serve one port together, as one of them sees the others.

All they share beyond the port lies in a directory that only this service may enter: a socket per
worker to talk over, a lock to take turns with, the bundle's tensors, and what each has counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import mmap
import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

logger = logging.getLogger(__name__)

Facts = dict[str, Any]
Handler = Callable[[Facts], Awaitable[Facts]]

_POLL_S = 0.05
_PATIENCE_S = 2.0


@dataclass
class Crew:
    """One worker's place among `size` of them; `Crew()` is a service of a single process."""

    index: int = 0
    size: int = 1
    directory: Path | None = None
    successor: bool = False
    """Started in the place of a worker that died, while the others go on serving."""
    ready: mmap.mmap | bytearray = field(default_factory=lambda: bytearray(1))
    """A byte per worker, in memory that all of them see: 1 once it was ready."""
    parent: int | None = None
    """A pipe that ends when the supervisor does."""

    def __post_init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._server: asyncio.Server | None = None
        self._orphaned = False

    @property
    def all_ready(self) -> bool:
        """Whether every worker has been ready; one that is replaced later does not undo it."""
        return all(self.ready[: self.size])

    def mark_ready(self) -> None:
        """Say that this worker is ready."""
        self.ready[self.index] = 1

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until no other worker loads or measures: times are true on an idle host only."""
        if self.directory is None:
            yield
            return
        with (self.directory / "turn").open("wb") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(_POLL_S)
            yield  # closing the file gives the turn away

    def on(self, what: str, handler: Handler) -> None:
        """Answer the others' calls of a kind."""
        self._handlers[what] = handler

    async def listen(self) -> None:
        """Be there for the others, and leave with the supervisor."""
        if self.parent is not None:
            asyncio.get_running_loop().add_reader(self.parent, self._leave)
        if self.directory is not None:
            path = self._socket(self.index)
            path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._answer, path)

    async def close(self) -> None:
        """Be there no more."""
        if self._server is not None:
            self._server.close()
        if self.parent is not None:
            asyncio.get_running_loop().remove_reader(self.parent)
        if self._orphaned and self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    async def ask(
        self, what: str, facts: Facts | None = None, patience_s: float | None = _PATIENCE_S
    ) -> list[Facts | None]:
        """Call all others at once; None stands for one that is not there or does not answer."""
        others = [i for i in range(self.size) if i != self.index]
        return await asyncio.gather(*(self._ask(i, what, facts or {}, patience_s) for i in others))

    async def _ask(
        self, index: int, what: str, facts: Facts, patience_s: float | None
    ) -> Facts | None:
        try:
            async with asyncio.timeout(patience_s):
                reader, writer = await asyncio.open_unix_connection(self._socket(index))
                try:
                    writer.write(orjson.dumps([what, facts]) + b"\n")
                    answer: Facts = orjson.loads(await reader.readline())
                    return answer
                finally:
                    writer.close()
        except (OSError, ValueError) as error:  # refused, reset, timed out, or died while answering
            logger.warning("worker %d does not answer %r: %r", index, what, error)
            return None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            what, facts = orjson.loads(await reader.readline())
            writer.write(orjson.dumps(await self._handlers[what](facts)) + b"\n")
            await writer.drain()
        except Exception:
            logger.exception("a call of another worker failed")
        finally:
            writer.close()

    def _socket(self, index: int) -> Path:
        assert self.directory is not None
        return self.directory / f"worker-{index}.sock"

    def _leave(self) -> None:
        assert self.parent is not None
        asyncio.get_running_loop().remove_reader(self.parent)
        self._orphaned = True
        logger.error("the supervisor is gone: leaving")
        os.kill(os.getpid(), signal.SIGTERM)
