"""A request's body: read within the limits, then watched for the client going away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from starlette.types import Receive, Scope

from service.errors import BodyTooLargeError, ClientGoneError, SlowClientError
from service.http.middleware import header
from service.http.protocol import CONNECTION, TimedProtocol

_WATCH_AFTER_S = 0.02


class Incoming:
    """The receiving side of one HTTP request."""

    def __init__(self, scope: Scope, receive: Receive, *, max_bytes: int, timeout_s: float) -> None:
        self.expected_bytes = _content_length(scope, max_bytes)
        """What the client announces; what admission reserves."""
        self.gone = False
        self._connection: TimedProtocol | None = scope.get(CONNECTION)
        self._receive = receive
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._is_slow = False
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def read(self) -> bytes:
        """The whole body."""
        # What asyncio.timeout does, at half its cost.
        timer = self._loop.call_later(self._timeout_s, self._give_up)
        try:
            message = await self._next()
            body: bytes = message.get("body", b"")
            self._check(len(body))
            return await self._rest(body) if message.get("more_body", False) else body
        except asyncio.CancelledError:
            if self._is_slow and self._task is not None and not self._task.uncancel():
                raise SlowClientError(
                    f"The body did not arrive within {self._timeout_s:g} s."
                ) from None
            raise
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        if self._task is not None:
            self._is_slow = True
            self._task.cancel()

    async def _rest(self, body: bytes) -> bytes:
        chunks, size, more = [body], len(body), True
        while more:
            message = await self._next()
            chunk = message.get("body", b"")
            size += len(chunk)
            self._check(size)
            chunks.append(chunk)
            more = message.get("more_body", False)
        return b"".join(chunks)

    async def _next(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError("The client left before its request was complete.")
        return message

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            raise BodyTooLargeError(f"The body may have at most {self._max_bytes} bytes.")

    def watch(self) -> None:
        """From now on the client's leaving cancels the task that serves it."""
        if self._connection is None:
            # Another server's. Not at once: most requests are answered before a watcher would be
            # worth its cost.
            self._timer = self._loop.call_later(_WATCH_AFTER_S, self._begin_to_watch)
        else:
            self._connection.watch(self._lost)

    def _lost(self) -> None:
        # Not at once here either: a task that is cancelled before it began leaves no record.
        self._timer = self._loop.call_later(_WATCH_AFTER_S, self._leave)

    def _begin_to_watch(self) -> None:
        self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        # After the body the next message can only be the client's leaving.
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._leave()

    def _leave(self) -> None:
        if self._task is not None:
            self.gone = True
            self._task.cancel()

    def close(self) -> None:
        """Stop watching."""
        if self._connection is not None and self._connection.on_lost == self._lost:
            self._connection.on_lost = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None

    async def serve(self, work: Awaitable[None]) -> None:
        """Do the work; quietly stop if the client leaves."""
        try:
            await work
        except asyncio.CancelledError:
            if not self.gone:
                raise
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
        finally:
            self.close()


def _content_length(scope: Scope, max_bytes: int) -> int:
    """What the client announces, refused at once if too much; chunked bodies count as full."""
    value = header(scope, b"content-length")
    if value is None:
        return max_bytes
    size = int(value) if value.isdigit() else 0
    if size > max_bytes:
        raise BodyTooLargeError(f"The body has {size} bytes; at most {max_bytes} are taken.")
    return size
