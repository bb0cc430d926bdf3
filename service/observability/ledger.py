"""Sums over all requests: plain numbers, cheap to update, that know no Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from san_core.frontier import OperatingPoint
from service.request.request import STAGES, Outcome, Request

SECONDS = (
    0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05,
    0.075, 0.1, 0.15, 0.2, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip
BATCHES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
_ELSEWHERE = "other"
_PROMISED = frozenset(
    {Outcome.ANSWERED, Outcome.LATE, Outcome.EXPIRED, Outcome.OVERLOADED, Outcome.IMPOSSIBLE}
)
"""Requests whose budget came to something: kept, missed, or refused."""


class Histogram:
    """Counts per bucket, and the sum."""

    __slots__ = ("bounds", "counts", "exemplars", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.exemplars: dict[int, tuple[str, float]] = {}
        """Per bucket the last trace that fell into it, and its value."""

    def observe(self, value: float, trace: str | None = None) -> None:
        """Count a value in the first bucket whose bound is not below it."""
        bucket = bisect_left(self.bounds, value)
        self.counts[bucket] += 1
        self.sum += value
        if trace is not None:
            self.exemplars[bucket] = trace, value

    def cumulative(self) -> list[tuple[str, float, tuple[str, float] | None]]:
        """(bound, count up to it, its last trace), as Prometheus wants them."""
        total = 0
        buckets = []
        for i, count in enumerate(self.counts):
            total += count
            bound = repr(self.bounds[i]) if i < len(self.bounds) else "+Inf"
            buckets.append((bound, float(total), self.exemplars.get(i)))
        return buckets


@dataclass
class Accuracy:
    """Right answers out of those whose truth, or what is taken for it, is known."""

    right: int = 0
    right_in_top5: int = 0
    known: int = 0
    expected: float = 0.0
    """Sum of what was expected of the same answers."""

    def add(self, *, first: bool, top5: bool, expected: float = 0.0) -> None:
        """Count one answer."""
        self.known += 1
        self.right += first
        self.right_in_top5 += top5
        self.expected += expected


BUDGETS = ("met", "missed", "refused", "infeasible", "none")
ACCURACY = ("kept", "short")
CANDIDATE = ("same", "different")
RELOADS = ("swapped", "unchanged", "promoted", "rolled_back", "failed")
SHORT_BY = 0.02
"""An answer falls short if it is less accurate by more than this than what an idle host would have
bought for the same budget: the objective of the accuracy alerts is 99 % that do not."""


def _trace(record: Request) -> str | None:
    """The trace id of a W3C `traceparent`: version-trace-span-flags."""
    parent = record.traceparent
    return parent[3:35] if parent is not None and len(parent) >= 55 else None


def _budget_result(record: Request) -> str:
    """What became of a budget; "infeasible" is what this host could not do when idle either.

    A prediction is no excuse: on a host that became slow the service foresees its own misses.
    """
    if record.terms.budget_ms is None:
        return "none"
    if record.met:
        return "met"
    if record.idle is not None:
        feasible = record.idle.feasible
    else:  # the client named the point: too slow a point is its choice
        feasible = (record.predicted_ms or 0.0) <= record.terms.budget_ms
    if not feasible:
        return "infeasible"
    refused = record.outcome in (Outcome.OVERLOADED, Outcome.IMPOSSIBLE)
    return "refused" if refused else "missed"


@dataclass
class Ledger:
    """Everything that is counted. Labels come from closed sets, whatever clients send."""

    resolutions: Collection[int] = ()
    """Resolutions that get a label of their own; the rest share one."""
    requests: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    """By resolution, mode, outcome and the bundle's version."""
    duration: dict[tuple[str, str, str], Histogram] = field(default_factory=dict)
    stages: dict[str, Histogram] = field(default_factory=lambda: {s: Histogram() for s in STAGES})
    overhead: Histogram = field(default_factory=Histogram)
    budgets: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By result and the bundle's version."""
    errors: Counter[str] = field(default_factory=Counter)
    prediction_error: Histogram = field(
        default_factory=lambda: Histogram((0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0))
    )
    """Spent over predicted: 1 is exact, more is optimism."""
    expected_accuracy_sum: float = 0.0
    expected_accuracy_count: int = 0
    given_up_sum: float = 0.0
    given_up_count: int = 0
    accuracy_served: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Answers by whether they kept to what an idle host would have bought, and by version."""
    shortfall_sum: float = 0.0
    """Sum of the accuracy that an idle host would have bought on top."""
    batches: Histogram = field(default_factory=lambda: Histogram(BATCHES))
    engine_ms: float = 0.0
    """Time that the engine spent running batches."""
    builds: Histogram = field(default_factory=lambda: Histogram((*SECONDS, 5.0, 10.0)))
    feedback: dict[str, Accuracy] = field(default_factory=dict)
    agreement: dict[str, Accuracy] = field(default_factory=dict)
    reloads: Counter[str] = field(default_factory=Counter)
    candidate: Counter[str] = field(default_factory=Counter)
    """Pictures that a candidate and the bundle that serves answered: same or different."""

    def label(self, resolution: int) -> str:
        """A resolution as a label of bounded cardinality."""
        return str(resolution) if resolution in self.resolutions else _ELSEWHERE

    def observe(self, record: Request) -> None:
        """Count one request."""
        point, timing = record.point, record.timing
        key = (
            self.label(point.resolution) if point else "none",
            str(point.mode) if point else "none",
            str(record.outcome),
        )
        version = record.model_version or "none"
        self.requests[*key, version] += 1
        histogram = self.duration.get(key)
        if histogram is None:
            histogram = self.duration[key] = Histogram()
        histogram.observe(timing.total / 1000, _trace(record))
        if record.error:
            self.errors[record.error] += 1
        if record.outcome in _PROMISED:
            self.budgets[_budget_result(record), version] += 1
        if record.outcome in (Outcome.ANSWERED, Outcome.LATE):
            self._answered(record)

    def _answered(self, record: Request) -> None:
        timing = record.timing
        for stage in STAGES:
            self.stages[stage].observe(getattr(timing, stage) / 1000)
        self.overhead.observe(max(0.0, timing.total - timing.staged) / 1000)
        if record.predicted_ms:
            self.prediction_error.observe(timing.total / record.predicted_ms)
        if record.expected_accuracy is not None:
            self.expected_accuracy_sum += record.expected_accuracy
            self.expected_accuracy_count += 1
            if record.idle is not None and record.idle.accuracy is not None:
                short = record.idle.accuracy - record.expected_accuracy
                result = "short" if short > SHORT_BY else "kept"
                self.accuracy_served[result, record.model_version] += 1
                self.shortfall_sum += max(0.0, short)
        if record.given_up > 0:
            self.given_up_sum += record.given_up
            self.given_up_count += 1

    def observe_batch(self, point: OperatingPoint, size: int, took_ms: float) -> None:  # noqa: ARG002
        """Count one run of the engine."""
        self.batches.observe(size)
        self.engine_ms += took_ms

    def observe_build(self, point: OperatingPoint, took_ms: float) -> None:  # noqa: ARG002
        """Count one main network that was made ready."""
        self.builds.observe(took_ms / 1000)

    def observe_truth(
        self, table: dict[str, Accuracy], resolution: int, *, first: bool, top5: bool
    ) -> None:
        """Count one answer whose truth became known."""
        table.setdefault(self.label(resolution), Accuracy()).add(first=first, top5=top5)

    def observe_feedback(
        self, resolution: int, expected: float | None, *, first: bool, top5: bool
    ) -> None:
        """Count feedback together with the accuracy that was expected of the answer.

        An answer without an expected accuracy goes with the resolutions without a label, so that
        in every other one the two sums are over the same answers.
        """
        label = self.label(resolution) if expected is not None else _ELSEWHERE
        entry = self.feedback.setdefault(label, Accuracy())
        entry.add(first=first, top5=top5, expected=expected or 0.0)
