"""A request's body: read within the limits, then watched for the client going away.

Bytes count against the client's allowance as they arrive, and they must keep arriving: a body that
trickles in holds a place for longer than any image is worth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import Receive, Scope

from san_core.errors import SanError
from service.errors import BodyTooLargeError, ClientGoneError, SlowClientError
from service.http.access.limits import Allowance, ClientLimits
from service.http.connection.protocol import CONNECTION, BoundedProtocol
from service.http.middleware import header
from service.request.client import CLIENT

_WATCH_AFTER_S = 0.02
_GRACE_S, _LOOK_S = 3.0, 1.0
"""When a body's pace is looked at first (lost packets are sent again by then), and how often."""
_LEAST_BYTES_PER_S = 4096
"""The slowest pace: a tenth of what a poor mobile connection has."""
_LOOK_AT = (65_536, 1_000_000)
"""Sizes in bytes at which the beginning of a body is checked. Most headers are in the first, and an
image that is costly per byte shows by the second. Smaller bodies arrive before a check would save
anything."""
_JOINED_AT_ONCE = 2_000_000
"""Larger bodies are joined on a thread, which lets go of the interpreter: 20 MB take 15 ms, most of
it for memory that the kernel has to clear."""

Look = Callable[[bytes], None]
"""Raises if a body that begins so will be refused, whatever follows."""


class Incoming:
    """The receiving side of one HTTP request."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        limits: ClientLimits,
        *,
        max_bytes: int,
        timeout_s: float,
    ) -> None:
        _check_announced(scope, max_bytes)
        self._limits, self._client = limits, scope[CLIENT]
        self.allowance = Allowance(limits, self._client)
        """The caller closes it; `serve` does so itself."""
        self.gone = False
        self._connection: BoundedProtocol | None = scope.get(CONNECTION)
        self._receive = receive
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._is_slow = False
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def read(self, look: Look | None = None) -> bytes:
        """The whole body.

        If a look at its beginning refuses it, the rest is not kept: the protocol drops what
        follows an answer, so that a client that sends first and reads then sees the answer.
        """
        self.allowance.add_requests(1)
        # What asyncio.timeout does, at half its cost.
        self._begun = self._loop.time()
        self._pace = self._loop.call_later(min(_GRACE_S, self._timeout_s), self._look)
        try:
            message = await self._next()
            body: bytes = message.get("body", b"")
            self._add(len(body))
            return await self._rest(body, look) if message.get("more_body", False) else body
        except asyncio.CancelledError:
            if self._is_slow and self._task is not None and not self._task.uncancel():
                raise SlowClientError(
                    f"The body did not arrive within {self._timeout_s:g} s, or at less than "
                    f"{_LEAST_BYTES_PER_S} bytes a second."
                ) from None
            raise
        finally:
            self._pace.cancel()

    def _look(self) -> None:
        """Go on waiting only if enough has come, and there is time left."""
        spent_s = self._loop.time() - self._begun
        left_s = self._timeout_s - spent_s
        if left_s > 0 and self._size >= _LEAST_BYTES_PER_S * (spent_s - _GRACE_S + 1):
            self._pace = self._loop.call_later(min(_LOOK_S, left_s), self._look)
        elif self._task is not None:
            self._is_slow = True
            self._task.cancel()

    async def _rest(self, body: bytes, look: Look | None) -> bytes:
        chunks, more = [body], True
        due = iter(_LOOK_AT if look is not None else ())
        look_at = next(due, self._max_bytes)
        while more:
            if pause_s := self.allowance.pause_s():
                await asyncio.sleep(pause_s)
            if self._size >= look_at and look is not None:
                look_at = next(due, self._max_bytes)
                look(b"".join(chunks))
            message = await self._next()
            chunk = message.get("body", b"")
            self._add(len(chunk))
            chunks.append(chunk)
            more = message.get("more_body", False)
        if self._size < _JOINED_AT_ONCE:
            return b"".join(chunks)
        return await self._loop.run_in_executor(None, b"".join, chunks)

    async def _next(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError("The client left before its request was complete.")
        return message

    def _add(self, size: int) -> None:
        self._size += size
        self.allowance.add_bytes(size)
        if self._size > self._max_bytes:
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
        """Do the work; quietly stop if the client leaves.

        A client that is refused again and again gets its answer later each time.
        """
        try:
            await work
        except asyncio.CancelledError:
            if not self.gone:
                raise
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
        except SanError as error:
            self.close()
            self.allowance.close()
            if pause_s := self._limits.penalty_s(self._client, error):
                await asyncio.sleep(pause_s)
            raise
        finally:
            self.close()
            self.allowance.close()


def _check_announced(scope: Scope, max_bytes: int) -> None:
    """Refuse a body at once whose announced length is too large."""
    value = header(scope, b"content-length")
    if value is not None and value.isdigit() and int(value[:20]) > max_bytes:
        raise BodyTooLargeError(f"The body may have at most {max_bytes} bytes.")
