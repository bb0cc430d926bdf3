"""The outermost ASGI layer: request id, clock, doors, and problem+json for every error."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from san_core.errors import SanError
from service.errors import PROBLEM_JSON, ClientGoneError, Problem
from service.http.auth import Doors
from service.http.protocol import FIRST_BYTE
from service.request.client import CLIENT, ClientIdentity
from service.runtime.clock import Clock

logger = logging.getLogger(__name__)

REQUEST_ID = "san.request_id"
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
        if name == b"x-request-id" and _USABLE_ID.fullmatch(value):
            return value.decode()
    return secrets.token_hex(12)


async def send_problem(send: Send, problem: Problem, request_id: str) -> None:
    """Send an error as problem+json."""
    headers = [
        (b"content-type", PROBLEM_JSON.encode()),
        (b"content-length", str(len(problem.body)).encode()),
        (b"x-request-id", request_id.encode()),
        *((name.lower().encode(), value.encode()) for name, value in problem.headers.items()),
    ]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": problem.body})


class Shell:
    """Wraps the application; also dispatches the hot path before any framework sees it."""

    def __init__(
        self,
        app: ASGIApp,
        doors: Doors,
        clients: ClientIdentity,
        clock: Clock,
        fast: dict[tuple[str, str], ASGIApp],
        turned_away: Callable[[Scope, Exception], None] = lambda *_: None,
    ) -> None:
        self._app = app
        self._doors = doors
        self._clients = clients
        self._clock = clock
        self._fast = fast
        self._turned_away = turned_away
        """Called for whom the doors stay closed."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault(FIRST_BYTE, self._clock())
        request_id = scope[REQUEST_ID] = _request_id(scope["headers"])
        path = scope["path"]
        if path[-1:] == "/" and path.startswith("/v2/"):
            # Clients of that protocol add it as they like, and few follow a redirect with a body.
            path = scope["path"] = path.rstrip("/")
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if not any(name == b"x-request-id" for name, _ in message["headers"]):
                    message["headers"] = [
                        *message["headers"],
                        (b"x-request-id", request_id.encode()),
                    ]
            await send(message)

        try:
            try:
                self._doors.check(path, scope["headers"], self._clients.address(scope))
            except SanError as error:
                self._turned_away(scope, error)
                raise
            scope[CLIENT] = self._clients.of(scope)
            app = self._fast.get((scope["method"], path), self._app)
            await app(scope, receive, watched)
        except ClientGoneError:
            return
        except Exception as error:
            problem = Problem(error, request_id)
            if problem.status >= 500 and not isinstance(error, SanError):
                logger.exception("unforeseen", extra={"facts": {"request_id": request_id}})
            if not started:
                await send_problem(send, problem, request_id)
