"""Inside Ray's proxy: what a request meets first, and its answer last.

The proxy runs this middleware and the request router in one process. What the middleware learns of
requests (until when) and of replicas (their headroom) the router finds in `REQUESTS`, `REPLICAS`.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import defaultdict
from collections.abc import Callable
from urllib.parse import parse_qs

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.fleet.headroom import HEADER, parse
from service.fleet.routing import View

RECEIVED = b"x-san-received"
REPLICA = b"x-san-replica"
REQUEST_ID = b"x-request-id"
_PROBLEM = b"application/problem+json"
_UNLIMITED_MS = 2000.0
"""A request without a budget is routed as one with this."""

REQUESTS: dict[str, float] = {}
"""Request id -> when its answer is due, in ms of `time.monotonic`."""
REPLICAS: defaultdict[str, View] = defaultdict(View)
"""Replica id -> what is known of it."""


def now_ms() -> float:
    """The clock of this process."""
    return 1000 * time.monotonic()


def budget_ms(scope: Scope, headers: dict[bytes, bytes]) -> float:
    """What a request allows, as far as a router needs to know; the replica checks it."""
    text = headers.get(b"x-budget-ms", b"").decode("latin-1")
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    try:
        return float(query.get("budget_ms", [text])[0])
    except ValueError:
        return _UNLIMITED_MS


class AtTheProxy:
    """Notes when a request arrived, whatever the client claims, and what its answer says."""

    def __init__(self, app: ASGIApp, now: Callable[[], float] = time.time) -> None:
        self._app = app
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"])
        request_id = given.get(REQUEST_ID) or secrets.token_hex(12).encode()
        kept = [pair for pair in scope["headers"] if pair[0] not in (RECEIVED, REQUEST_ID)]
        stamped = [*kept, (REQUEST_ID, request_id), (RECEIVED, b"%.6f" % self._now())]
        name = request_id.decode("latin-1")
        if scope.get("method") == "POST":
            REQUESTS[name] = now_ms() + budget_ms(scope, given)
        begun = replaced = False

        async def read(message: Message) -> None:
            nonlocal begun, replaced
            if message["type"] == "http.response.start":
                begun = True
                headers = dict(message["headers"])
                if REPLICA in headers and (headroom := parse(headers.get(HEADER, b""))):
                    REPLICAS[headers[REPLICA].decode("latin-1")].report(headroom, now_ms())
                elif message["status"] >= 500 and REPLICA not in headers:
                    replaced = True
                    await _send_problem(send, name)
            if not replaced:
                await send(message)

        try:
            await self._app({**scope, "headers": stamped}, receive, read)
        finally:
            REQUESTS.pop(name, None)
        if not begun:
            await _send_problem(send, name)


async def _send_problem(send: Send, request_id: str) -> None:
    """Say as a problem that a replica is gone: Ray says it in plain text, or not at all."""
    detail = "The replica that had this request is gone; send it again."
    problem = {
        "type": "urn:san-serve:problem:replica-lost",
        "title": "Replica lost",
        "status": 503,
        "detail": detail,
        "request_id": request_id,
        "error": detail,
    }
    body = json.dumps(problem).encode()
    headers = [
        (b"content-type", _PROBLEM),
        (b"content-length", b"%d" % len(body)),
        (b"retry-after", b"1"),
        (REQUEST_ID, request_id.encode("latin-1")),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def middlewares() -> list[Middleware]:
    """What Ray's proxy is to run (RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH)."""
    return [Middleware(AtTheProxy)]
