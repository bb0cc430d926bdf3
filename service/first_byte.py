"""When a request's first byte arrived.

uvicorn calls the application once the headers are complete; a client that sends slowly would get
the time before that for free. This protocol notes the moment the parser sees a message begin.
What it cannot see is time spent in the kernel's buffer while the event loop is busy:
`san_loop_lag_seconds` shows how much that can be.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.clock import monotonic_ms

FIRST_BYTE = "san.first_byte_ms"


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, with the clock started at the first byte."""

    def on_message_begin(self) -> None:
        """Note the time in the scope the application will get."""
        super().on_message_begin()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope[FIRST_BYTE] = monotonic_ms()
