"""What one replica could promise at a moment, in a few numbers and as a response header.

The header is that of ORCA (Open Request Cost Aggregation), `endpoint-load-metrics`, in its text
form, which Envoy and gRPC's balancers read. What is ours goes into its `named_metrics`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

HEADER = b"endpoint-load-metrics"
_BUDGET = "named_metrics.budget_ms_at_"
_FEW = 6
"""Points in the header: the fastest, the best, and those that tell most between them."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """The budgets that a replica would keep for a request that came now."""

    points: tuple[tuple[float, float], ...]
    """(accuracy, smallest budget in ms at which it is served), less accurate first."""
    work_ms: float = 0.0
    """What one more request adds to the wait of all."""
    wait_ms: float = 0.0
    """How long the work inside keeps the engine busy; 0 if nothing is inside."""
    price: float = 0.0
    """What a millisecond of the engine is worth to the others, in accuracy."""
    arrivals_per_s: float = 0.0
    utilisation: float = 0.0
    """Share of a smallest budget that the work inside takes; 1 at most."""

    def expected(self, budget_ms: float) -> float:
        """The most that is served within a budget; 0 if nothing is.

        Between two points it grows in proportion to the budget: reports are a little old, and a
        step would take a hair for a point of accuracy.
        """
        best = 0.0
        for (low, low_ms), (high, high_ms) in pairwise((*self.points, (0.0, float("inf")))):
            if budget_ms < low_ms:
                break
            best = low
            if low_ms < budget_ms < high_ms < float("inf"):
                best += (high - low) * (budget_ms - low_ms) / (high_ms - low_ms)
        return best

    def header(self) -> bytes:
        """As ORCA's text."""
        named = "".join(f",{_BUDGET}{a:.4f}={needed:.2f}" for a, needed in self.points)
        return (
            f"TEXT application_utilization={self.utilisation:.3f},"
            f"rps_fractional={self.arrivals_per_s:.1f},named_metrics.work_ms={self.work_ms:.3f},"
            f"named_metrics.wait_ms={self.wait_ms:.3f},"
            f"named_metrics.price={self.price:.5f}{named}"
        ).encode()


def parse(value: bytes) -> Headroom | None:
    """Read a header; None if it is not one of ours."""
    kind, _, text = value.decode("latin-1").partition(" ")
    if kind != "TEXT":
        return None
    numbers: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        try:
            numbers[name.strip()] = float(number)
        except ValueError:
            return None
    points = sorted(
        (float(name.removeprefix(_BUDGET)), ms)
        for name, ms in numbers.items()
        if name.startswith(_BUDGET)
    )
    if not points:
        return None
    return Headroom(
        tuple(points),
        numbers.get("named_metrics.work_ms", 0.0),
        numbers.get("named_metrics.wait_ms", 0.0),
        numbers.get("named_metrics.price", 0.0),
        numbers.get("rps_fractional", 0.0),
        numbers.get("application_utilization", 0.0),
    )


def few(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """A handful of (accuracy, budget) that stands for all: no step of accuracy is large."""
    kept: list[tuple[float, float]] = []
    for accuracy, budget in sorted(points, key=lambda point: (point[1], -point[0])):
        if not kept or accuracy > kept[-1][0]:
            kept.append((accuracy, budget))
    while len(kept) > _FEW:
        steps = [b[0] - a[0] for a, b in pairwise(kept)]
        # Without its neighbour below, the step to a point is the sum of both.
        inner = min(range(1, len(kept) - 1), key=lambda i: steps[i - 1] + steps[i])
        del kept[inner]
    return tuple(kept)
