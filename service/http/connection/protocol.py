"""One HTTP connection: bounded before its client is known, and timed from the first byte.

uvicorn calls the application once a request's headers are complete. Until then no key is known,
so everything a connection may cost is bounded here: the bytes and the number of headers, the
requests that wait on one connection, the pieces a body comes in, and the time that passes without a
request. The moment a request begins is noted for its budget; time that it spent in the kernel's
buffer while the event loop was busy cannot be seen (`san_loop_lag_seconds` shows how much).

The protocol also tells when the connection is lost: cheaper than a task that waits for uvicorn's
message. A lost connection keeps nothing alive: no timer, no headers, no request that waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.errors import PROBLEM_JSON, HeadersTooLargeError, MalformedHttpError, Problem
from service.http.connection.connections import Connections
from service.runtime.clock import monotonic_ms

FIRST_BYTE = "san.first_byte_ms"
CONNECTION = "san.connection"

MAX_HEADERS = 100
MAX_HEADER_BYTES = 65_536
"""Of one request, with its URL; what Apache, nginx and Node take is a quarter of it or less."""
MAX_PIPELINED = 16
"""Requests that wait for the answer to an earlier one of their connection."""
_TINY = 128
_MAX_TINY_PIECES = 256
"""How many pieces of less than `_TINY` bytes a body may have; each costs microseconds."""


class _Joined:
    """A transport that sends two writes of the same turn of the event loop as one.

    uvicorn writes the head of a response, then its body. Each write is a system call, and wakes a
    client that cannot go on before it has both.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""
        self._alone: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        """Hold the first, unless there is no second."""
        if self._alone is None:
            self._held, self._alone = data, self._loop.call_soon(self._flush)
        else:
            self._flush(data)

    def _flush(self, data: bytes = b"") -> None:
        if self._alone is not None:
            self._alone.cancel()
            self._alone = None
            self._transport.write(self._held + data)

    def close(self) -> None:
        """Close when all is written."""
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._transport.is_closing()


class _RefusedError(Exception):
    """Ends the parser's work within the data it was given."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with bounds, and the clock started at the first byte."""

    headers_timeout_s = 10.0
    """Time for the headers of a request, and for the first request of a connection to begin.

    Between requests uvicorn's own timeout applies.
    """
    open_connections = Connections()
    on_lost: Callable[[], None] | None = None
    """Called when the connection is lost; see `watch`."""
    _is_lost = False
    _in_headers = False
    _header_bytes = 0
    _silent_bytes = 0
    """Received since the parser last got anywhere: of a header, a trailer, empty lines."""
    _tiny_pieces = 0
    _refusal: Exception | None = None
    _is_refused = False
    """What else comes is not read."""
    _hanging_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, if there is room for one more connection."""
        super().connection_made(transport)
        if self.open_connections.take(self, self._peer()):
            self._wait_for_request()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer, say so, and let go of everything."""
        self._stop_waiting()
        self.open_connections.release(self, self._peer())
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn does so only if the client was polite
        self._is_lost = True
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None
        self.pipeline.clear()
        # A request that is still served has its own reference to what it needs.
        forget = cast(Any, self)
        forget.scope = forget.headers = forget.cycle = None

    def watch(self, on_lost: Callable[[], None]) -> None:
        """Call this when the connection is lost; at once if it is."""
        if self._is_lost:
            on_lost()
            return
        self.on_lost = on_lost
        if not self.pipeline:
            self.flow.resume_reading()  # behind a large body uvicorn reads on only if it is asked

    @property
    def is_idle(self) -> bool:
        """Whether no request is served or begun."""
        cycle: Any = self.cycle  # none before the first request, whatever its type says
        return not self._in_headers and (cycle is None or cycle.response_complete)

    def data_received(self, data: bytes) -> None:
        """Parse within the bounds. Most headers come in one piece: only others need a timer."""
        if self._is_refused:
            return
        self._silent_bytes += len(data)
        super().data_received(data)
        if self._silent_bytes > MAX_HEADER_BYTES:
            self._refuse(HeadersTooLargeError(_TOO_LARGE))
        elif self._hanging_up is None and (self._in_headers or self._is_forgotten):
            self._wait_for_request()

    @property
    def _is_forgotten(self) -> bool:
        # Bytes that begin no request, after an answer, have ended uvicorn's own timer.
        return self.timeout_keep_alive_task is None and self.is_idle

    def on_message_begin(self) -> None:
        """Note the time in the scope the application will get, and where it came from."""
        super().on_message_begin()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope[FIRST_BYTE] = monotonic_ms()
        scope[CONNECTION] = self
        self._in_headers = True
        self._header_bytes = self._silent_bytes = self._tiny_pieces = 0

    def on_url(self, url: bytes) -> None:
        """Count its bytes."""
        super().on_url(url)
        self._header_bytes += len(url)
        if self._header_bytes > MAX_HEADER_BYTES:
            self._stop(HeadersTooLargeError(_TOO_LARGE))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count it, and its bytes; trailers come here too."""
        self._header_bytes += len(name) + len(value)
        if len(self.headers) >= MAX_HEADERS or self._header_bytes > MAX_HEADER_BYTES:
            self._stop(HeadersTooLargeError(_TOO_LARGE))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Wait no longer."""
        self._in_headers = False
        self._silent_bytes = 0
        if self._hanging_up is not None:
            self._stop_waiting()
        if len(self.pipeline) >= MAX_PIPELINED:
            self._stop(MalformedHttpError(f"At most {MAX_PIPELINED} requests may wait in line."))
        before: Any = self.cycle
        super().on_headers_complete()
        cycle: Any = self.cycle
        if cycle is not before:  # else it asks for another protocol
            cycle.transport = _Joined(self.transport, self.loop)

    def on_body(self, body: bytes) -> None:
        """Count the pieces that are too small to be worth their cost."""
        self._silent_bytes = 0
        if len(body) < _TINY:
            self._tiny_pieces += 1
            if self._tiny_pieces > _MAX_TINY_PIECES:
                self._stop(MalformedHttpError("The body comes in too many tiny pieces."))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is here."""
        self._silent_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn when parsing ends with an error: our refusal, or bad syntax."""
        self._refuse(self._refusal or MalformedHttpError(msg))

    def _peer(self) -> str:
        return self.client[0] if self.client else ""

    def _stop(self, refusal: Exception) -> None:
        self._refusal = refusal
        raise _RefusedError

    def _refuse(self, refusal: Exception) -> None:
        """Answer and close, the later the more was refused to this address lately."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        self.pipeline.clear()
        self._stop_waiting()
        pause_s = self.open_connections.pause_s(self._peer())
        if pause_s:
            self.flow.pause_reading()
            self.loop.call_later(pause_s, self._end_with, refusal)
        else:
            self._end_with(refusal)

    def _end_with(self, refusal: Exception) -> None:
        """Answer and close; without an answer where one to an earlier request is still due."""
        if self.transport.is_closing():
            return
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            self.transport.abort()
            return
        problem = Problem(refusal, None)
        self.transport.write(
            STATUS_LINE[problem.status]
            + f"content-type: {PROBLEM_JSON}\r\ncontent-length: {len(problem.body)}\r\n".encode()
            + b"connection: close\r\n\r\n"
            + problem.body
        )
        self.transport.close()

    def _wait_for_request(self) -> None:
        if not self._is_refused:
            self._hanging_up = self.loop.call_later(self.headers_timeout_s, self._hang_up)

    def _stop_waiting(self) -> None:
        if self._hanging_up is not None:
            self._hanging_up.cancel()
            self._hanging_up = None

    def _hang_up(self) -> None:
        self._hanging_up = None
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._wait_for_request()  # the answer to an earlier request is still on its way
        else:
            self.transport.close()


_TOO_LARGE = f"At most {MAX_HEADERS} headers of {MAX_HEADER_BYTES} bytes in all are taken."


def bounded_protocol(
    headers_timeout_s: float, connections: Connections | None = None
) -> type[BoundedProtocol]:
    """The protocol with its settings; uvicorn takes a class and makes an object per connection."""
    settings = {
        "headers_timeout_s": headers_timeout_s,
        "open_connections": Connections() if connections is None else connections,
    }
    return type("BoundedProtocol", (BoundedProtocol,), settings)
