"""The layers around the application, outermost first; each has one duty.

A layer that only looks at a request and hands it on is no coroutine: it returns the one within.

RequestId       gives a request its id and the time of its first byte
Problems        turns every error into problem+json
TrailingSlash   takes `/v2/…/` for `/v2/…`
Authentication  asks for the key that the route needs (`http.auth`)
FastPath        sends the hot route past the framework
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Awaitable, Iterable, Mapping

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from san_core.command_line import what_is_wrong
from san_core.errors import SanError
from service.errors import PROBLEM_JSON, ClientGoneError, HttpError, ParameterError, Problem
from service.http.connection.protocol import FIRST_BYTE
from service.http.hints import hint
from service.runtime.clock import Clock

logger = logging.getLogger(__name__)

REQUEST_ID = "san.request_id"
_ID_HEADER = b"x-request-id"
_USABLE_ID = re.compile(rb"[A-Za-z0-9._~-]{1,64}")


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of that (lower-case) name."""
    return next((value for key, value in scope["headers"] if key == name), None)


def traceparent(scope: Scope) -> str | None:
    """The caller's span, if it names one."""
    value = header(scope, b"traceparent")
    return value.decode("latin-1") if value else None


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The client's own id if it can be used as one, else a new one."""
    for name, value in headers:
        if name == _ID_HEADER and _USABLE_ID.fullmatch(value):
            return value.decode()
    return secrets.token_hex(12)


class RequestId:
    """Gives each request an id, which its answer carries, and notes when it began.

    What is no HTTP, the start and the end of the application, goes to `others`: no layer within
    has to look.
    """

    def __init__(self, app: ASGIApp, clock: Clock, others: ASGIApp) -> None:
        self._app = app
        self._clock = clock
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._others(scope, receive, send)
            return
        scope.setdefault(FIRST_BYTE, self._clock())  # another server's protocol does not note it
        request_id = scope[REQUEST_ID] = _request_id(scope["headers"])

        def identified(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                if not any(name == _ID_HEADER for name, _ in headers):
                    message["headers"] = [*headers, (_ID_HEADER, request_id.encode())]
            return send(message)

        await self._app(scope, receive, identified)


def as_problem(error: Exception, scope: Scope) -> Problem:
    """Any error as a problem; the framework's own are translated first."""
    request_id: str | None = scope.get(REQUEST_ID)
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        error = ParameterError(f"{where} {what_is_wrong(first)}.", where)
    elif isinstance(error, HTTPException):
        meant = hint(error.status_code, scope["method"], scope["path"])
        error = HttpError(error.status_code, str(error.detail), dict(error.headers or {}), meant)
    elif not isinstance(error, SanError):
        logger.error("unforeseen", exc_info=error, extra={"facts": {"request_id": request_id}})
    return Problem(error, request_id)


class Problems:
    """Answers every error with problem+json. No other place does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        started = False

        def watched(message: Message) -> Awaitable[None]:
            nonlocal started
            started = True
            return send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientGoneError:
            return
        except Exception as error:
            problem = as_problem(error, scope)
            if not started:
                await _send(send, problem)


async def _send(send: Send, problem: Problem) -> None:
    headers = [
        (b"content-type", PROBLEM_JSON.encode()),
        (b"content-length", str(len(problem.body)).encode()),
        *((name.lower().encode(), value.encode()) for name, value in problem.headers.items()),
    ]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": problem.body})


class TrailingSlash:
    """Drops the slash at the end of a path below a prefix.

    Clients of the Open Inference Protocol add it as they like, and few follow a redirect that
    would have to repeat the body.
    """

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        path: str = scope["path"]
        if path[-1:] == "/" and path.startswith(self._prefix):
            scope["path"] = path.rstrip("/")
        return self._app(scope, receive, send)


class FastPath:
    """Sends the routes in `fast` to their ASGI applications, the others to the framework."""

    def __init__(self, app: ASGIApp, fast: Mapping[tuple[str, str], ASGIApp]) -> None:
        self._app = app
        self._fast = fast

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        app = self._fast.get((scope["method"], scope["path"]), self._app)
        return app(scope, receive, send)
