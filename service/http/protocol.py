"""When a request's first byte arrived, how long its headers may take, and when its client left.

uvicorn calls the application once the headers are complete; a client that sends slowly would get
the time before that for free, and one that never completes them would keep its connection for ever.
This protocol notes the moment the parser sees a message begin, and hangs up on headers that do not
come. It tells who asked when the connection is lost: cheaper than a task that waits for uvicorn's
message. What it cannot see is time spent in the kernel's buffer while the event loop is busy:
`san_loop_lag_seconds` shows how much that can be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.runtime.clock import monotonic_ms

FIRST_BYTE = "san.first_byte_ms"
CONNECTION = "san.connection"


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, with the clock started at the first byte."""

    headers_timeout_s = 10.0
    """Time for the headers of a request, and for the first request of a connection to begin.

    Between requests uvicorn's own timeout applies.
    """
    on_lost: Callable[[], None] | None = None
    """Called when the connection is lost; see `watch`."""
    _is_lost = False
    _in_headers = False
    _hanging_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer, and say so."""
        self._stop_waiting()
        super().connection_lost(exc)
        self._is_lost = True
        if self.on_lost is not None:
            self.on_lost()

    def watch(self, on_lost: Callable[[], None]) -> None:
        """Call this when the connection is lost; at once if it is."""
        if self._is_lost:
            on_lost()
            return
        self.on_lost = on_lost
        self.flow.resume_reading()  # behind a large body uvicorn reads on only if it is asked

    def data_received(self, data: bytes) -> None:
        """Most headers come in one piece: only those that do not are worth a timer."""
        super().data_received(data)
        if self._in_headers and self._hanging_up is None:
            self._wait_for_headers()

    def on_message_begin(self) -> None:
        """Note the time in the scope the application will get, and where it came from."""
        super().on_message_begin()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope[FIRST_BYTE] = monotonic_ms()
        scope[CONNECTION] = self
        self._in_headers = True

    def on_headers_complete(self) -> None:
        """Wait no longer."""
        self._in_headers = False
        if self._hanging_up is not None:
            self._stop_waiting()
        super().on_headers_complete()

    def _wait_for_headers(self) -> None:
        self._hanging_up = self.loop.call_later(self.headers_timeout_s, self._hang_up)

    def _stop_waiting(self) -> None:
        if self._hanging_up is not None:
            self._hanging_up.cancel()
            self._hanging_up = None

    def _hang_up(self) -> None:
        self._hanging_up = None
        cycle: Any = self.cycle  # none before the first request, whatever its type says
        if cycle is not None and not cycle.response_complete:
            self._wait_for_headers()  # the answer to an earlier request is still on its way
        else:
            self.transport.close()


def timed_protocol(headers_timeout_s: float) -> type[TimedProtocol]:
    """The protocol with a timeout; uvicorn takes a class and makes an object per connection."""
    return type("TimedProtocol", (TimedProtocol,), {"headers_timeout_s": headers_timeout_s})
