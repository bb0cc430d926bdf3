"""What happened to one request: filled in along the pipeline, read by everyone after."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from san_core.frontier import OperatingPoint
from service.request.terms import Terms

STAGES = ("receive", "queue", "decode", "weights", "forward")


class Outcome(StrEnum):
    """How a request ended; the set is closed, so it can be a label."""

    ANSWERED = "answered"
    LATE = "late"
    OVERLOADED = "overloaded"
    IMPOSSIBLE = "impossible"
    EXPIRED = "expired"
    UNAVAILABLE = "unavailable"
    REJECTED = "rejected"
    DISCONNECTED = "disconnected"
    FAILED = "failed"


@dataclass(slots=True)
class Timing:
    """Milliseconds per stage."""

    receive: float = 0.0
    queue: float = 0.0
    decode: float = 0.0
    weights: float = 0.0
    forward: float = 0.0
    total: float = 0.0

    @property
    def staged(self) -> float:
        """The sum of the named stages; what is missing to the total is overhead."""
        return self.receive + self.queue + self.decode + self.weights + self.forward


@dataclass(slots=True)
class RequestRecord:
    """The facts of one request."""

    request_id: str
    terms: Terms
    model: str = ""
    model_version: str = ""
    outcome: Outcome = Outcome.FAILED
    error: str | None = None
    status: int = 0
    point: OperatingPoint | None = None
    expected_accuracy: float | None = None
    given_up: float = 0.0
    reason: str = ""
    predicted_ms: float | None = None
    met: bool = False
    cached: bool = True
    batch: int = 0
    body_bytes: int = 0
    timing: Timing = field(default_factory=Timing)
    started_ms: float = 0.0
    traceparent: str | None = None
    """The caller's span, if it sent one."""
