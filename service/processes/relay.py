"""A layer around a worker's application that answers for all workers where one would not do.

Workers talk over Unix sockets in a directory that only this service may enter: one JSON line asks,
one answers. A relayed request is the client's own, headers and keys included, so it may do in the
other worker what it may do here.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.processes.metrics import merge

logger = logging.getLogger(__name__)

_PATIENCE_S = 60.0
"""How long another worker may take: a reload measures the host if it must."""
_LONGEST_LINE = 64_000_000
_MAX_BODY = 65_536
"""No relayed route takes a larger body."""
_FAILED = 400
_UNKNOWN = 404


class Response(NamedTuple):
    """A whole HTTP response."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


@dataclass(frozen=True)
class Request:
    """A whole HTTP request."""

    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    client: tuple[str, int] | None
    body: bytes

    async def answered_by(self, app: ASGIApp) -> Response:
        """Have an application answer."""
        status, headers, chunks = 500, [], []
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": self.method,
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": self.query,
            "root_path": "",
            "headers": self.headers,
            "client": self.client,
            "server": None,
        }
        unread = [self.body]

        async def receive() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            await asyncio.Event().wait()  # the client stays until it has its answer
            raise AssertionError

        async def send(message: Message) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = message["status"], list(message["headers"])
            else:
                chunks.append(message.get("body", b""))

        await app(scope, receive, send)
        return Response(status, headers, b"".join(chunks))


def _pack(pairs: list[tuple[bytes, bytes]]) -> list[list[str]]:
    return [[name.decode("latin-1"), value.decode("latin-1")] for name, value in pairs]


def _unpack(pairs: list[list[str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]


Rule = Callable[["Relay", Request], Awaitable[Response]]


class Relay:
    """The layer."""

    def __init__(self, app: ASGIApp, directory: Path) -> None:
        self._app = app
        self._directory = directory
        self._socket = directory / f"worker-{os.getpid()}.sock"
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Be there for the other workers."""
        with (self._directory / "starts").open("ab") as starts:
            starts.write(b".")
        self._server = await asyncio.start_unix_server(
            self._answer, self._socket, limit=_LONGEST_LINE
        )

    async def close(self) -> None:
        """Be there no more."""
        if self._server is not None:
            self._server.close()
        self._socket.unlink(missing_ok=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        rule = _rule(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if rule is None:
            await self._app(scope, receive, send)
            return
        request = Request(
            scope["method"],
            scope["path"],
            scope["query_string"],
            list(scope["headers"]),
            scope.get("client"),
            await _body(receive),
        )
        status, headers, body = await rule(self, request)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def here(self, request: Request) -> Response:
        """Answer in this worker."""
        return await request.answered_by(self._app)

    async def elsewhere(self, request: Request) -> list[tuple[str, Response]]:
        """The answers of all other workers that answer, by the name of their socket."""
        sockets = [path for path in self._directory.glob("*.sock") if path != self._socket]
        answers = await asyncio.gather(*(self._ask(path, request) for path in sockets))
        return [(path.stem, found) for path, found in zip(sockets, answers, strict=True) if found]

    async def _ask(self, path: Path, request: Request) -> Response | None:
        line = orjson.dumps(
            {
                "method": request.method,
                "path": request.path,
                "query": request.query.decode("latin-1"),
                "headers": _pack(request.headers),
                "client": request.client,
                "body": base64.b64encode(request.body).decode(),
            }
        )
        try:
            async with asyncio.timeout(_PATIENCE_S):
                reader, writer = await asyncio.open_unix_connection(path, limit=_LONGEST_LINE)
                try:
                    writer.write(line + b"\n")
                    data = orjson.loads(await reader.readline())
                finally:
                    writer.close()
            return Response(
                data["status"], _unpack(data["headers"]), base64.b64decode(data["body"])
            )
        except ConnectionRefusedError:  # of a worker that was killed and could not remove it
            await asyncio.to_thread(path.unlink, missing_ok=True)
        except (OSError, ValueError, KeyError) as error:
            logger.warning("%s does not answer %s: %r", path.stem, request.path, error)
        return None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            data: dict[str, Any] = orjson.loads(await reader.readline())
            client = data["client"]
            request = Request(
                data["method"],
                data["path"],
                data["query"].encode("latin-1"),
                _unpack(data["headers"]),
                None if client is None else (client[0], client[1]),
                base64.b64decode(data["body"]),
            )
            status, headers, body = await self.here(request)
            answer = {
                "status": status,
                "headers": _pack(headers),
                "body": base64.b64encode(body).decode(),
            }
            writer.write(orjson.dumps(answer) + b"\n")
            await writer.drain()
        except Exception:
            logger.exception("a request of another worker failed")
        finally:
            writer.close()

    async def in_all(self, request: Request) -> Response:
        """Here first; if that went well, in every other worker. The first failure is the answer."""
        answer = await self.here(request)
        if answer.status < _FAILED:
            for _, other in await self.elsewhere(request):
                if other.status >= _FAILED and other.status != _UNKNOWN:
                    return other
        return answer

    async def in_any(self, request: Request) -> Response:
        """Where it is known: here, or in the first other worker that knows it."""
        answer = await self.here(request)
        if answer.status == _UNKNOWN:
            for _, other in await self.elsewhere(request):
                if other.status != _UNKNOWN:
                    return other
        return answer

    async def evicted(self, request: Request) -> Response:
        """In every worker; it is unknown only if it is so in all of them."""
        answers = [await self.here(request), *(x for _, x in await self.elsewhere(request))]
        return next((x for x in answers if x.status != _UNKNOWN), answers[0])

    async def added_up(self, request: Request) -> Response:
        """The metrics of all workers. Of one that died, what it had counted when last asked."""
        plain = [(name, value) for name, value in request.headers if name != b"accept"]
        request = Request("GET", request.path, request.query, plain, request.client, b"")
        mine = await self.here(request)
        if mine.status >= _FAILED:
            return mine
        pages = {self._socket.stem: mine, **dict(await self.elsewhere(request))}
        alive = {name: page.body.decode() for name, page in pages.items()}
        dead = [
            file.read_text() for file in self._directory.glob("*.prom") if file.stem not in alive
        ]
        for name, page in alive.items():
            with contextlib.suppress(OSError):  # a full disk costs a dead worker's counts
                (self._directory / f"{name}.prom").write_text(page)
        starts = (self._directory / "starts").stat().st_size
        workers = GaugeMetricFamily(
            "san_workers", "Processes that serve the port.", value=len(alive)
        )
        restarts = CounterMetricFamily(
            "san_worker_restarts",
            "Workers that were started in the place of another.",
            value=max(0, starts - len(alive)),
        )
        body = await asyncio.to_thread(merge, alive.values(), dead, [workers, restarts])
        return Response(200, [(b"content-type", CONTENT_TYPE_LATEST.encode())], body)


_RULES: tuple[tuple[str, re.Pattern[str], Rule], ...] = (
    ("GET", re.compile(r"/metrics"), Relay.added_up),
    ("POST", re.compile(r"/feedback"), Relay.in_any),
    ("POST", re.compile(r"/admin/\w+"), Relay.in_all),
    ("POST", re.compile(r"/resolutions/\d+/warm"), Relay.in_all),
    ("DELETE", re.compile(r"/resolutions/\d+"), Relay.evicted),
)


def _rule(method: str, path: str) -> Rule | None:
    if path in ("/classify", "/"):
        return None
    return next((rule for m, p, rule in _RULES if m == method and p.fullmatch(path)), None)


async def _body(receive: Receive) -> bytes:
    """The body, cut off behind what any relayed route takes: it is too large either way."""
    body = b""
    while len(body) <= _MAX_BODY:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return body
