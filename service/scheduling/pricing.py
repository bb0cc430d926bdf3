"""What a point costs the engine under load, and what a millisecond of the engine is worth.

Engine time is shared out among those who wait and those who are expected. A share of b
milliseconds per image buys what the concave hull of (cost, accuracy) says at b; the hull's slope
there is the *price*: how much accuracy the others lose by one millisecond. It is 0 when the share
pays for the most accurate point. The hull's first corner, where accuracy per millisecond is best,
is the *floor*: load alone never goes below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

from service.latency.catalogue import Listing
from service.latency.model import LatencyModel
from service.scheduling.tuning import TUNING


@dataclass(frozen=True, slots=True)
class PointCost:
    """One point and what it takes from the engine under load, in ms."""

    listing: Listing
    accuracy: float
    alone_ms: float
    """A run of one image with nobody else inside."""
    runs_ms: tuple[float, ...]
    """A run of 1, 2, … images under load, with what decoding takes from the same cores."""
    unit_ms: float
    """Per image, at the batch size that gets the most done."""
    best_batch: int
    luxury: bool
    """Whether a cheaper precision of the same resolution is as accurate, within the error."""

    def run_ms(self, images: int) -> float:
        """A run under load; more images than fit a batch run one batch after the other."""
        runs = self.runs_ms
        if images <= len(runs):
            return runs[images - 1]
        return runs[-1] * images / len(runs)


@dataclass(frozen=True, slots=True)
class CostTable:
    """All points that may be chosen, fastest first, and the hull over them."""

    points: tuple[PointCost, ...]
    hull: tuple[tuple[float, float], ...]
    """(unit_ms, accuracy): the floor first, the best last."""
    handover_ms: float
    overhead_ms: float
    """Of a request under load."""
    idle_overhead_ms: float
    decode_pace: float
    """How much longer decoding takes under load."""
    floor: PointCost
    """The point that buys the most accuracy per millisecond."""
    best: PointCost
    """The most accurate one that is no luxury."""
    cheapest: PointCost
    """The one that takes the least of the engine."""

    def price(self, share_ms: float) -> float:
        """Accuracy per millisecond that a share of so many milliseconds per image is worth."""
        low_ms, low = 0.0, 0.0
        for unit_ms, accuracy in self.hull:
            if share_ms < unit_ms:
                return (accuracy - low) / (unit_ms - low_ms)
            low_ms, low = unit_ms, accuracy
        return 0.0


@dataclass(frozen=True)
class Host:
    """What shares the machine's cores with the engine."""

    cores: int = 1
    decode_threads: int = 1
    shared: bool = True
    """Whether the engine runs on the cores that decode and serve HTTP; a GPU does not."""


def make_table(
    listings: Sequence[Listing],
    model: LatencyModel,
    host: Host,
    max_batch: int,
    decode_ms: Callable[[int], float],
    cycle_pace: float = 1.0,
) -> CostTable:
    """Cost all listings; `decode_ms` is what decoding for a resolution takes of late.

    `cycle_pace` is how much longer whole cycles of a crowded service took than their images should
    have: what keeps the cores busy besides engine and decoders shows there and nowhere else.
    """
    pace, handover = model.busy_pace, model.handover_ms
    overhead, busy_overhead = model.overhead_ms(), model.overhead_ms(alone=False)
    points = []
    for listing in listings:
        decode = decode_ms(listing.point.resolution)
        beside = beside_ms(host, decode, overhead)
        # However fast the engine is, it cannot be given more than the decoders bring.
        least = decode / host.decode_threads
        base = model.bases_ms(listing.shape, max_batch)
        runs = tuple([pace * (ms + n * beside) for n, ms in enumerate(base, 1)])
        each = [(ms + handover) / n for n, ms in enumerate(runs, 1)]
        size = min(range(max_batch), key=each.__getitem__)
        points.append(
            PointCost(
                listing,
                listing.rank,
                model.forward_ms(listing.shape),
                runs,
                cycle_pace * max(each[size], least),
                size + 1,
                _is_luxury(listing, listings),
            )
        )
    hull = _hull(points)
    floor = next(p for p in points if (p.unit_ms, p.accuracy) == hull[0])
    best = max((p for p in points if not p.luxury), key=lambda p: p.accuracy, default=points[-1])
    return CostTable(
        tuple(points),
        hull,
        handover,
        busy_overhead,
        overhead,
        model.decode_pace,
        floor,
        best,
        min(points, key=lambda p: p.unit_ms),
    )


def beside_ms(host: Host, decode_ms: float, overhead_ms: float) -> float:
    """What one image's decoding and HTTP take from the engine while it runs."""
    return (decode_ms + overhead_ms) / host.cores if host.shared else 0.0


def _is_luxury(listing: Listing, listings: Sequence[Listing]) -> bool:
    measured = listing.measured
    if measured is None:
        return False
    error = sqrt(listing.rank * (1.0 - listing.rank) / measured.n)
    point = listing.point
    return any(
        other.point.resolution == point.resolution
        and other.point.precision != point.precision
        and point.precision == "float"
        and other.rank >= listing.rank - error
        for other in listings
    )


def _hull(points: Sequence[PointCost]) -> tuple[tuple[float, float], ...]:
    """The upper concave hull from the origin over (cost, accuracy), without luxuries."""
    plain = [p for p in points if not p.luxury] or list(points)
    left = sorted({(p.unit_ms, p.accuracy) for p in plain}, key=lambda x: (x[0], -x[1]))
    best_slope = max(accuracy / ms for ms, accuracy in left)
    near = [x for x in left if x[1] / x[0] >= (1.0 - TUNING.floor) * best_slope]
    corner = max(near, key=lambda x: x[1])
    found = [corner]
    while True:
        ahead = [x for x in left if x[0] > corner[0] and x[1] > corner[1]]
        if not ahead:
            return tuple(found)
        base = corner
        corner = max(ahead, key=lambda x: ((x[1] - base[1]) / (x[0] - base[0]), x[1]))
        found.append(corner)
