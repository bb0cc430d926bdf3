"""One request, from its first byte to its answer: what it asks for, where it is, what became of it.

The pipeline moves it from state to state, the schedule orders it, and everything that counts, logs
or answers reads it. There is no second object for the same request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from san_core.frontier import OperatingPoint
from service.request.terms import Terms

_CLASS_MS = 1e7
"""More than any deadline is apart from another."""
STAGES = ("receive", "queue", "decode", "weights", "forward")


@dataclass(frozen=True, slots=True)
class Idle:
    """What an idle service would have done for one request."""

    feasible: bool
    """Whether it would have kept the budget."""
    accuracy: float | None
    """Of the best point that would fit the budget; None if none would, or none was evaluated."""


class State(StrEnum):
    """Where a request is."""

    RECEIVING = "receiving"
    DECODING = "decoding"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


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
        """The sum of the named stages; the rest of the total is overhead."""
        return self.receive + self.queue + self.decode + self.weights + self.forward


@dataclass(slots=True, eq=False)
class Request:
    """One request. Times are milliseconds of the service's clock."""

    request_id: str
    terms: Terms
    started_ms: float = 0.0
    """When the first byte arrived."""
    patience_ms: float = 2000.0
    """What the service allows a request that names no budget."""
    traceparent: str | None = None
    """The caller's span, if it sent one."""
    client: str = ""
    """Whose share of the engine it uses."""
    upload_ms: float = 0.0
    """How long the service waited for its body: the client's time, not the service's."""
    images: int = 1
    """How many images it carries; they run at one point, together."""
    decoded_apart: bool = False
    """Whether some are decoded by helpers or as large ones: that takes no time of the decoders."""
    state: State = State.RECEIVING

    allowed_ms: float = field(init=False)
    """The budget, or the service's patience where there is none."""
    deadline_ms: float = field(init=False)
    """When the budget ends."""

    # What the schedule holds of it.
    due_ms: float = field(init=False)
    """When its answer is due; later than the deadline if that could not be kept from the start."""
    decode_ms: float = 0.0
    """Predicted time of its decoding; 0 once that is done."""
    work_ms: float = 0.0
    """Engine time it is expected to take."""
    least_ms: float = 0.0
    """The same at the smallest point that load may give it."""
    decided_ms: float = 0.0
    rest_ms: float = 0.0
    """When its point was first chosen, and the predicted time from then to the answer."""
    waiting_ms: float = 0.0
    """Since when it waits for the engine."""
    dispatched_ms: float = 0.0
    after_ms: float = 0.0
    """When it went to the engine, and the predicted time from then to the answer."""
    side: int = 0
    """The largest resolution that its decoded pixels are good for."""
    behind: bool = False
    """Whether its client takes more than its share while others want theirs."""
    promised: bool = False
    """Whether it was let in because it would be in time."""
    alone: bool = False
    """Whether no other request was inside when its point was chosen."""
    direct: bool = False
    """Whether the engine's thread decodes it as well: alone, and quickly decoded."""
    joined: bool = False
    """Whether others came while it was inside."""

    # What became of it.
    model: str = ""
    model_version: str = ""
    bundle: str = ""
    """SHA-256 of the bundle that served it."""
    outcome: Outcome = Outcome.FAILED
    error: str | None = None
    status: int = 0
    point: OperatingPoint | None = None
    expected_accuracy: float | None = None
    accuracy_source: str | None = None
    """`measured`, `interpolated`, or None if no accuracy is claimed."""
    given_up: float = 0.0
    idle: Idle | None = None
    """What this host would have done for it when idle; None if the client pinned the point."""
    reason: str = ""
    predicted_ms: float | None = None
    """Predicted median of the whole, from the first byte to the answer."""
    estimated: bool = False
    """Whether the point was not measured on this host yet: its times are between others'."""
    bound_ms: float | None = None
    """The time that the promise used: 99 of 100 answers are expected within it."""
    met: bool = False
    cached: bool = True
    batch: int = 0
    body_bytes: int = 0
    size: tuple[int, int] | None = None
    """Width and height of its first image, where it had to be decoded."""
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        budget = self.terms.budget_ms
        self.allowed_ms = self.patience_ms if budget is None else budget
        self.due_ms = self.deadline_ms = self.started_ms + self.allowed_ms

    def spent_ms(self, now_ms: float) -> float:
        """Time gone since the first byte."""
        return max(0.0, now_ms - self.started_ms)

    def left_ms(self, now_ms: float) -> float:
        """Time left until the deadline; negative once it passed."""
        return self.deadline_ms - now_ms

    @property
    def decode_urgency(self) -> float:
        """Smaller is decoded first: the order of service as one number."""
        return self.due_ms + _CLASS_MS * (2 * self.terms.priority + self.behind)

    def in_time(self, now_ms: float) -> bool:
        """Whether an answer sent now is in time; always so without a budget."""
        return self.terms.budget_ms is None or now_ms <= self.deadline_ms
