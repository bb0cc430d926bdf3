"""The log for people: what happens while the service starts, then one line per request.

Records may carry `progress`, a tuple (done, of), or (done, of, seconds left) with None for unknown.
It is drawn as a bar that the next line replaces.
"""

from __future__ import annotations

import logging
import math
from typing import Any, TextIO

_WIDTH = 24
_QUIET = ("uvicorn", "uvicorn.error")
"""Loggers that may only show warnings."""
_GREEN, _YELLOW, _RED, _DIM, _PLAIN = "\033[32m", "\033[33m", "\033[31m", "\033[2m", "\033[0m"


class TerminalHandler(logging.Handler):
    """Writes to a terminal."""

    def __init__(self, stream: TextIO, worker: int | None = None) -> None:
        super().__init__()
        self._stream = stream
        self._whose = "" if worker is None else f"[{worker}] "
        self._bar = False
        """Whether the line where the cursor is shows a bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            if record.name in _QUIET and record.levelno < logging.WARNING:
                return
            line = self._line(record)
            progress = getattr(record, "progress", None)
            start = "\r\033[K" if self._bar else ""
            end = "\n"
            if progress is not None:
                done, of, *left = progress
                line, end = f"{_bar(done, of)} {line}{_time_left(*left)}", ""
            self._stream.write(f"{start}{line}{end}")
            self._stream.flush()
            self._bar = progress is not None
        except Exception:
            self.handleError(record)

    def _line(self, record: logging.LogRecord) -> str:
        facts: dict[str, Any] = getattr(record, "facts", None) or {}
        if record.name == "service.request":
            return self._whose + request_line(facts)
        if "address" in facts:
            return _welcome(facts["address"], facts["ready_s"])
        text = self._whose + record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        if record.levelno >= logging.ERROR:
            return f"{_RED}{text}{_PLAIN}"
        if record.levelno >= logging.WARNING:
            return f"{_YELLOW}{text}{_PLAIN}"
        return f"{_DIM}{text}{_PLAIN}"


def _welcome(address: str, ready_s: float) -> str:
    """Where the service is, and a line to paste."""
    return (
        f"{_GREEN}Ready{_PLAIN} after {ready_s:.1f} s. Open {address}, or paste:\n"
        f"  curl --data-binary @photo.jpg '{address}/classify?budget_ms=20'"
    )


def _bar(done: int, of: int) -> str:
    filled = round(_WIDTH * done / max(of, 1))
    return f"{_GREEN}{'━' * filled}{_DIM}{'━' * (_WIDTH - filled)}{_PLAIN} {done} of {of}"


def _time_left(seconds: float | None = None) -> str:
    return f"{_DIM}, about {math.ceil(seconds)} s left{_PLAIN}" if seconds else ""


def request_line(facts: dict[str, Any]) -> str:
    """What became of one request."""
    status, total = facts.get("status"), facts.get("total_ms", 0.0)
    colour = _RED
    if status == 200:
        colour = _GREEN if facts.get("met", True) else _YELLOW
    left = facts.get("error") == "disconnected"
    parts = [f"{colour}{'---' if left else status}{_PLAIN}", f"{total:7.1f} ms"]
    if "budget_ms" in facts:
        kept = " (missed)" if status == 200 and not facts.get("met") else ""
        parts.append(f"of {round(facts['budget_ms'], 1):g}{kept}")
    if "resolution" in facts:
        parts.append(f"{facts['resolution']} px {facts['precision']}")
        if status == 200:
            parts.append(
                f"{_DIM}decode {facts['decode_ms']:.1f}, wait {facts['queue_ms']:.1f}, "
                f"run {facts['forward_ms']:.1f}{_PLAIN}"
            )
    if left:
        parts.append("the client left")
    elif facts.get("error"):
        parts.append(f"{facts['error']}: {facts.get('reason') or ''}".rstrip(": "))
    return "  ".join(parts)
