"""The log: one JSON object or one line of text per event, or lines for people on a terminal."""

from __future__ import annotations

import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any

import orjson

from service.observability.terminal import TerminalHandler
from service.request.request import STAGES, Request

request_logger = logging.getLogger("service.request")


class JsonFormatter(logging.Formatter):
    """Time, level, logger, message, whatever was passed as `facts`, and an exception's text."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= self._worker
        facts = getattr(record, "facts", None)
        if facts:
            entry |= facts
        if (progress := getattr(record, "progress", None)) is not None:
            entry |= zip(("done", "of", "seconds_left"), progress, strict=False)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(entry, default=str, option=orjson.OPT_SERIALIZE_NUMPY).decode()


class TextFormatter(logging.Formatter):
    """Time, level and message, then whatever was passed as `facts`, as name=value."""

    def __init__(self, worker: int | None = None) -> None:
        whose = "" if worker is None else f"[{worker}] "
        super().__init__(f"%(asctime)s %(levelname)-7s {whose}%(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """One line."""
        facts = getattr(record, "facts", None) or {}
        return " ".join(
            [super().formatMessage(record), *(f"{k}={_bare(v)}" for k, v in facts.items())]
        )


def _bare(value: object) -> str:
    """A value that can be told from what follows: in quotes if it has spaces."""
    text = str(value)
    return repr(text) if not text.isprintable() or " " in text else text


_SELDOM_S, _MOST_KNOWN = 1.0, 64


class _Seldom(logging.Filter):
    """Lets a warning pass once a second: whoever sends nonsense must not write the log."""

    def __init__(self) -> None:
        super().__init__()
        self._again_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        now = time.monotonic()
        if now < self._again_s.get(record.msg, 0.0):
            return False
        if len(self._again_s) >= _MOST_KNOWN:
            self._again_s.clear()
        self._again_s[record.msg] = now + _SELDOM_S
        return True


def configure(level: str, log_format: str, worker: int | None = None) -> None:
    """Send everything, uvicorn's messages too, to stderr in one format.

    With several workers each line says whose it is.
    """
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if log_format == "text":
        handler.setFormatter(TextFormatter(worker))
    elif log_format == "auto" and sys.stderr.isatty():
        handler = TerminalHandler(sys.stderr, worker)
    else:
        handler.setFormatter(JsonFormatter(worker))
    logging.captureWarnings(True)  # Pillow has something to say about many a broken file
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.getLogger("uvicorn.access").disabled = True
    logging.getLogger("uvicorn.error").filters[:] = [_Seldom()]


def log_request(record: Request) -> None:
    """One line per request."""
    if not request_logger.isEnabledFor(logging.INFO):
        return
    point, timing = record.point, record.timing
    facts: dict[str, Any] = {
        "request_id": record.request_id,
        "outcome": str(record.outcome),
        "status": record.status,
        "total_ms": round(timing.total, 3),
    }
    if point is not None:
        facts |= {
            "resolution": point.resolution,
            "mode": str(point.mode),
            "precision": point.precision,
            "predicted_ms": round(record.predicted_ms or 0.0, 3),
            **{f"{stage}_ms": round(getattr(timing, stage), 3) for stage in STAGES},
            "batch": record.batch,
            "cached": record.cached,
        }
    if record.terms.budget_ms is not None:
        facts |= {"budget_ms": record.terms.budget_ms, "met": record.met}
    if record.error:
        facts |= {"error": record.error, "reason": record.reason}
    request_logger.info("classify", extra={"facts": facts})
