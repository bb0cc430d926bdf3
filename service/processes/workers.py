"""The worker processes on one port, as one of them sees the others.

They talk over Unix sockets in a directory that only this service may enter: one line asks, one line
answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from starlette.types import ASGIApp

from service.processes.metrics import merge
from service.processes.relay import FAILED, Relay, Request, Response, Rule

logger = logging.getLogger(__name__)

_PATIENCE_S = 60.0
"""How long another worker may take: a reload measures the host if it must."""
_LONGEST_LINE = 64_000_000


class UnixSockets:
    """A socket per worker, named after its process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._socket = directory / f"{os.getpid()}.sock"
        self._server: asyncio.Server | None = None

    async def open(self, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        """Be there for the other workers."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                writer.write(await answer(await reader.readline()) + b"\n")
                await writer.drain()
            except Exception:
                logger.exception("a request of another worker failed")
            finally:
                writer.close()

        try:
            self._server = await asyncio.start_unix_server(serve, self._socket, limit=_LONGEST_LINE)
        except OSError as error:  # a full or read-only disk must not keep a worker from serving
            logger.warning("other workers cannot ask this one: %s", error)

    async def close(self) -> None:
        """Be there no more."""
        if self._server is not None:
            self._server.close()
        await asyncio.to_thread(_remove, self._socket)

    async def ask(self, question: bytes) -> dict[str, bytes]:
        """Ask all other workers at once."""
        sockets = [path for path in self._directory.glob("*.sock") if path != self._socket]
        answers = await asyncio.gather(*(self._ask(path, question) for path in sockets))
        return {path.stem: line for path, line in zip(sockets, answers, strict=True) if line}

    async def _ask(self, path: Path, question: bytes) -> bytes | None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                reader, writer = await asyncio.open_unix_connection(path, limit=_LONGEST_LINE)
                try:
                    writer.write(question + b"\n")
                    return await reader.readline()
                finally:
                    writer.close()
        except ConnectionRefusedError:  # of a worker that was killed and could not remove it
            await asyncio.to_thread(_remove, path)
        except (OSError, ValueError) as error:
            logger.warning("worker %s does not answer: %r", path.stem, error)
        return None


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


class WorkerRelay(Relay):
    """The layer around a worker's application; it also adds up the metrics."""

    def __init__(self, app: ASGIApp, directory: Path) -> None:
        super().__init__(app, UnixSockets(directory))
        self._directory = directory
        # A disk that is full costs a count, and no worker.
        with contextlib.suppress(OSError), (directory / "starts").open("ab") as starts:
            starts.write(b".")

    async def added_up(self, request: Request) -> Response:
        """The metrics of all workers. Of one that died, what it had counted when last asked."""
        plain = [(name, value) for name, value in request.headers if name != b"accept"]
        request = Request("GET", request.path, request.query, plain, request.client, b"")
        mine = await self.here(request)
        if mine.status >= FAILED:
            return mine
        pages = {str(os.getpid()): mine, **await self.elsewhere(request)}
        alive = {name: page.body.decode() for name, page in pages.items()}
        body = await asyncio.to_thread(self._merged, alive)
        return Response(200, [(b"content-type", CONTENT_TYPE_LATEST.encode())], body)

    def _merged(self, alive: dict[str, str]) -> bytes:
        kept = self._directory.glob("*.prom")
        dead = [file.read_text() for file in kept if file.stem not in alive]
        for name, page in alive.items():
            with contextlib.suppress(OSError):  # a full disk costs a dead worker's counts
                (self._directory / f"{name}.prom").write_text(page)
        started = 0
        with contextlib.suppress(OSError):
            started = (self._directory / "starts").stat().st_size
        workers, restarts = len(alive), max(0, started - len(alive))
        extra = [
            GaugeMetricFamily("san_workers", "Processes that serve the port.", value=workers),
            CounterMetricFamily(
                "san_worker_restarts",
                "Workers that were started in the place of another.",
                value=restarts,
            ),
        ]
        return merge(alive.values(), dead, extra)

    rules: ClassVar[tuple[tuple[str, re.Pattern[str], Rule], ...]] = (
        *Relay.rules,
        ("GET", re.compile(r"/metrics"), added_up),  # type: ignore[arg-type]
    )
