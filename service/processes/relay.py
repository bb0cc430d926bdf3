"""A layer around an application that answers for all processes where one would not do.

It serves the workers on one port (`workers`) and the replicas of a cluster alike: they differ in
how they reach one another, which is `Others`. A relayed request is the client's own, headers and
keys included, so it may do elsewhere what it may do here.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MAX_BODY = 65_536
"""No relayed route takes a larger body."""
FAILED = 400
"""Statuses from here on are failures."""
_UNKNOWN = 404


class Response(NamedTuple):
    """A whole HTTP response."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def packed(self) -> bytes:
        """As one line of JSON."""
        return orjson.dumps([self.status, _texts(self.headers), b64encode(self.body).decode()])

    @classmethod
    def unpacked(cls, line: bytes) -> Response:
        """From `packed`."""
        status, headers, body = orjson.loads(line)
        return cls(status, _bytes(headers), b64decode(body))


@dataclass(frozen=True)
class Request:
    """A whole HTTP request."""

    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    client: tuple[str, int] | None
    body: bytes

    def packed(self) -> bytes:
        """As one line of JSON."""
        query, body = self.query.decode("latin-1"), b64encode(self.body).decode()
        facts = [self.method, self.path, query, _texts(self.headers), self.client, body]
        return orjson.dumps(facts)

    @classmethod
    def unpacked(cls, line: bytes) -> Request:
        """From `packed`."""
        method, path, query, headers, client, body = orjson.loads(line)
        return cls(
            method,
            path,
            query.encode("latin-1"),
            _bytes(headers),
            None if client is None else (client[0], client[1]),
            b64decode(body),
        )

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


def _texts(pairs: list[tuple[bytes, bytes]]) -> list[list[str]]:
    return [[name.decode("latin-1"), value.decode("latin-1")] for name, value in pairs]


def _bytes(pairs: list[list[str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]


class Others(Protocol):
    """The other processes or replicas that serve the same bundle, and a way to ask them."""

    async def open(self, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        """Be there for the others: `answer` turns a question into its answer."""

    async def close(self) -> None:
        """Be there no more."""

    async def ask(self, question: bytes) -> dict[str, bytes]:
        """The answers of all others that answer, by name."""


Rule = Callable[["Relay", Request], Awaitable[Response]]


class Relay:
    """The layer."""

    def __init__(self, app: ASGIApp, others: Others) -> None:
        self._app = app
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._others.open(self._answer)
            try:
                await self._app(scope, receive, send)
            finally:
                await self._others.close()
            return
        rule = self._rule(scope["method"], scope["path"]) if scope["type"] == "http" else None
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

    def _rule(self, method: str, path: str) -> Rule | None:
        if path in ("/classify", "/"):
            return None
        return next((rule for m, p, rule in self.rules if m == method and p.fullmatch(path)), None)

    async def here(self, request: Request) -> Response:
        """Answer in this process."""
        return await request.answered_by(self._app)

    async def elsewhere(self, request: Request) -> dict[str, Response]:
        """The answers of all others, by name."""
        answers = await self._others.ask(request.packed())
        return {name: Response.unpacked(line) for name, line in answers.items()}

    async def _answer(self, question: bytes) -> bytes:
        return (await self.here(Request.unpacked(question))).packed()

    async def in_all(self, request: Request) -> Response:
        """Here first; if that went well, everywhere else. The first failure is the answer."""
        answer = await self.here(request)
        if answer.status < FAILED:
            for other in (await self.elsewhere(request)).values():
                if other.status >= FAILED and other.status != _UNKNOWN:
                    return other
        return answer

    async def in_any(self, request: Request) -> Response:
        """Where it is known: here, or in the first other process that knows it."""
        answer = await self.here(request)
        if answer.status == _UNKNOWN:
            for other in (await self.elsewhere(request)).values():
                if other.status != _UNKNOWN:
                    return other
        return answer

    async def in_each(self, request: Request) -> Response:
        """Everywhere; it is unknown only if it is so everywhere."""
        answers = [await self.here(request), *(await self.elsewhere(request)).values()]
        return next((x for x in answers if x.status != _UNKNOWN), answers[0])

    rules: ClassVar[tuple[tuple[str, re.Pattern[str], Rule], ...]] = (
        ("POST", re.compile(r"/feedback"), in_any),
        ("POST", re.compile(r"/admin/\w+"), in_all),
        ("POST", re.compile(r"/resolutions/\d+/warm"), in_all),
        ("DELETE", re.compile(r"/resolutions/\d+"), in_each),
    )
    """What is answered for all, by method and path."""


async def _body(receive: Receive) -> bytes:
    """The body, cut off behind what any relayed route takes: it is too large either way."""
    body = b""
    while len(body) <= _MAX_BODY:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return body
