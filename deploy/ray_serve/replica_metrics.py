"""What a replica tells Ray: the facts of `/metrics`, under the same names, as they happen.

`/metrics` behind Ray's proxy is that of whichever replica answers. Ray has metrics of its own for
all of them: it puts `ray_` before a name and the replica among its tags. Nothing here needs Ray:
what makes its metrics is handed in.
"""

from __future__ import annotations

from typing import Any, Protocol

from service.observability.ledger import SECONDS, Ledger
from service.request.request import Outcome, Request


class Makers(Protocol):
    """`ray.serve.metrics`, or a stand-in."""

    Counter: Any
    Gauge: Any
    Histogram: Any


class ReplicaMetrics:
    """The metrics of one replica."""

    def __init__(self, makers: Makers) -> None:
        labels = ("resolution", "mode", "outcome")
        self._requests = makers.Counter(
            "san_requests", "Requests by operating point and outcome.", tag_keys=labels
        )
        self._duration = makers.Histogram(
            "san_request_duration_seconds",
            "First byte received to first byte sent, by operating point and outcome.",
            boundaries=list(SECONDS),
            tag_keys=labels,
        )
        self._budgets = makers.Counter(
            "san_budgets",
            "Requests by what became of their budget (met, missed, refused, infeasible, none).",
            tag_keys=("result",),
        )
        self._errors = makers.Counter(
            "san_errors", "Requests that ended in a problem, by its type.", tag_keys=("type",)
        )
        self._sums = {
            fact: makers.Counter(f"san_{name}", text)
            for fact, name, text in (
                (
                    "expected_accuracy_sum",
                    "expected_accuracy_sum",
                    "Sum of the expected accuracy of answers.",
                ),
                (
                    "expected_accuracy_count",
                    "expected_accuracy_count",
                    "Answers with an expected accuracy.",
                ),
                (
                    "given_up_sum",
                    "accuracy_given_up_sum",
                    "Sum of the accuracy given up to load.",
                ),
                (
                    "given_up_count",
                    "accuracy_given_up_count",
                    "Answers whose resolution was lowered by load.",
                ),
                (
                    "shortfall_sum",
                    "accuracy_shortfall_sum",
                    "Sum of the accuracy that an idle host would have bought on top.",
                ),
            )
        }
        self._ready = makers.Gauge("san_ready", "1 if the replica is ready.")
        self._inside = makers.Gauge("san_inflight_requests", "Requests inside.")

    def follow(self, ledger: Ledger) -> None:
        """From now on count here, too, what is counted there."""
        count = ledger.observe

        def observe(record: Request) -> None:
            count(record)
            # A ledger of this request alone: labels and results are decided in one place.
            alone = Ledger(ledger.resolutions)
            alone.observe(record)
            self._add(alone, record.timing.total / 1000)

        ledger.observe = observe  # type: ignore[method-assign]

    def _add(self, alone: Ledger, seconds: float) -> None:
        for resolution, mode, outcome, _ in alone.requests:
            tags = {"resolution": resolution, "mode": mode, "outcome": outcome}
            self._requests.inc(1, tags=tags)
            self._duration.observe(seconds, tags=tags)
        for result, _ in alone.budgets:
            self._budgets.inc(1, tags={"result": result})
        for kind in alone.errors:
            self._errors.inc(1, tags={"type": kind})
        for fact, counter in self._sums.items():
            value = getattr(alone, fact)
            if value > 0:  # Ray's counters refuse to be increased by nothing
                counter.inc(value)

    def look(self, *, ready: bool, inside: int) -> None:
        """What is only true at this moment."""
        self._ready.set(float(ready))
        self._inside.set(float(inside))


class Toll:
    """What load cost clients, between one look and the next."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._last = self._sums()
        self._last_ms: float | None = None

    def _sums(self) -> tuple[float, float, float, float, float]:
        ledger = self._ledger
        outcomes: dict[str, int] = {}
        for (_, _, outcome, _), n in ledger.requests.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + n
        missed = sum(n for (result, _), n in ledger.budgets.items() if result in _BROKEN)
        return (
            ledger.shortfall_sum,
            float(sum(ledger.accuracy_served.values())),
            float(missed),
            float(sum(n for outcome, n in outcomes.items() if outcome != Outcome.REJECTED)),
            ledger.engine_ms / 1000,
        )

    def since_last(self, now_ms: float) -> dict[str, float]:
        """Accuracy short per answer, share of promises refused or broken, share of time in use."""
        sums, last_ms = self._sums(), self._last_ms
        short, answers, broken, requests, busy_s = (
            a - b for a, b in zip(sums, self._last, strict=True)
        )
        self._last, self._last_ms = sums, now_ms
        seconds = (now_ms - last_ms) / 1000 if last_ms is not None else 0.0
        return {
            "short": short / answers if answers else 0.0,
            "broken": broken / requests if requests else 0.0,
            "busy": busy_s / seconds if seconds > 0 else 0.0,
        }


_BROKEN = ("missed", "refused")
