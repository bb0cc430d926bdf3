"""What arrives, as a file that `san replay` reads: never pixels, never names."""

from __future__ import annotations

from pathlib import Path

import orjson

from service.request.request import Request

_FLUSHED = 64
"""Requests between two writes to the disk."""


class Recorder:
    """Writes one line per request, in the order in which they end."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        self._lines: list[bytes] = []
        self._first_ms: float | None = None
        self._clients: dict[str, str] = {}

    def __call__(self, request: Request) -> None:
        """Note one request that ended."""
        if self._first_ms is None:
            self._first_ms = request.started_ms
        client = self._clients.setdefault(request.client, f"client {len(self._clients)}")
        width, height = request.size or (500, 375)
        facts = {
            "at_ms": round(request.started_ms - self._first_ms, 3),
            "budget_ms": request.terms.budget_ms,
            "bytes": request.body_bytes,
            "width": width,
            "height": height,
            "client": client,
            "images": request.images,
            "outcome": str(request.outcome),
            "resolution": request.point.resolution if request.point else None,
            "spent_ms": round(request.timing.total, 3),
        }
        self._lines.append(orjson.dumps(facts, option=orjson.OPT_APPEND_NEWLINE))
        if len(self._lines) >= _FLUSHED:
            self.flush()

    def flush(self) -> None:
        """Write what was noted."""
        self._file.write(b"".join(self._lines))
        self._file.flush()
        self._lines.clear()

    def close(self) -> None:
        """Write the rest and close the file."""
        self.flush()
        self._file.close()
