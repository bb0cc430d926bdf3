"""What the service answers, as dataclasses. Members a newer service adds are ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from san_client.errors import UnexpectedAnswerError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Prediction:
    """One class and its score."""

    index: int
    label: str
    score: float


@dataclass(frozen=True, slots=True)
class Budget:
    """What was allowed, what was predicted, what it took; in milliseconds."""

    budget_ms: float | None
    predicted_ms: float
    spent_ms: float
    met: bool | None
    """None if no budget was named."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds per stage on the service."""

    receive: float
    queue: float
    decode: float
    weights: float
    forward: float
    total: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one image."""

    request_id: str
    model: str
    model_version: str
    predictions: tuple[Prediction, ...]
    resolution: int
    mode: str
    precision: str
    expected_accuracy: float | None
    """Of 1; None outside of what was evaluated."""
    accuracy_source: str | None
    """`measured`, `interpolated` between two evaluated resolutions, or None."""
    reason: str
    weights: str
    budget: Budget
    timing_ms: Timing
    round_trip_ms: float
    """From the call to the answer as the client saw it: network and retries included."""
    attempts: int

    @property
    def best(self) -> Prediction:
        """The class with the highest score."""
        return self.predictions[0]


@dataclass(frozen=True, slots=True)
class Judgement:
    """How an answer compares with the truth."""

    request_id: str
    correct: bool
    in_top5: bool
    resolution: int


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds of one run of the engine."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Measured accuracy, and on what."""

    top1: float
    top5: float
    dataset: str
    n: int


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """One operating point on the service's host."""

    resolution: int
    mode: str
    precision: str
    provenance: str
    accuracy: Accuracy | None
    latency_ms: Mapping[int, Latency]
    """By batch size."""
    smallest_budget_ms: float
    macs: int
    weight_bytes: int
    cached: bool
    frontier: bool


@dataclass(frozen=True, slots=True)
class Version:
    """What runs there; no model while the service is still loading."""

    version: str
    model: str | None
    model_version: str | None
    engine: str | None
    device: str | None


def read_answer(data: Any, *, round_trip_ms: float, attempts: int) -> Answer:
    """The answer of `POST /classify`."""
    given = _object(data)
    return _read(
        Answer,
        given
        | {
            "predictions": tuple(_read(Prediction, p) for p in _list(given, "predictions")),
            "budget": _read(Budget, given.get("budget")),
            "timing_ms": _read(Timing, given.get("timing_ms")),
            "round_trip_ms": round_trip_ms,
            "attempts": attempts,
        },
    )


def read_judgement(data: Any) -> Judgement:
    """The answer of `POST /feedback`."""
    return _read(Judgement, data)


def read_points(data: Any) -> tuple[OperatingPoint, ...]:
    """The answer of `GET /resolutions`."""
    return tuple(_point(point) for point in _list(_object(data), "operating_points"))


def _point(data: Any) -> OperatingPoint:
    given = _object(data)
    accuracy = given.get("accuracy")
    latency = _object(given.get("latency_ms"))
    return _read(
        OperatingPoint,
        given
        | {
            "accuracy": None if accuracy is None else _read(Accuracy, accuracy),
            "latency_ms": {int(size): _read(Latency, value) for size, value in latency.items()},
        },
    )


def read_version(data: Any) -> Version:
    """The answer of `GET /version`."""
    given = _object(data)
    model = _object(given.get("model") or {})
    return _read(
        Version, given | {"model": model.get("name"), "model_version": model.get("version")}
    )


def _read(kind: type[T], data: Any) -> T:
    given = _object(data)
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    missing = [name for name in names if name not in given]
    if missing:
        raise UnexpectedAnswerError(f"The answer lacks {', '.join(missing)}: is this san-serve?")
    return kind(**{name: given[name] for name in names})


def _object(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise UnexpectedAnswerError("The answer is not the JSON object it should be.")
    return data


def _list(data: Mapping[str, Any], name: str) -> list[Any]:
    found = data.get(name)
    if not isinstance(found, list):
        raise UnexpectedAnswerError(f"The answer's {name} is not a list.")
    return found
