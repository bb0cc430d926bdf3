"""What the engine runs next: which requests, together, at which point. Chosen when it is free.

Pure, like `deciding`: the requests that wait, the costs, the load and the spread in; a plan out.
Batch and point are chosen together. For each point the batch is the one that gets the most done
while it keeps every promise in it. Of these the one is run that loses the least:

    sum over the batch (w - accuracy x P(in time)) + price x run + sum over the others (w - w')

where w is the most that a request could still get by itself, less the price of the engine time it
takes, and w' the same after the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from service.latency.model import ASSUMED
from service.latency.quantiles import Spread
from service.request.request import Request
from service.scheduling.deciding import affordable, share_ms
from service.scheduling.pricing import CostTable, PointCost
from service.scheduling.schedule import Load
from service.scheduling.tuning import TUNING

Allowed = Callable[[Request, PointCost], bool]
"""Whether a request may run at a point: its pin, its accuracy, its decoded pixels, weights."""


@dataclass(slots=True)
class Plan:
    """What to do now."""

    run: list[Request] = field(default_factory=list)
    """Run these as one batch; none: there is nothing to run."""
    cost: PointCost | None = None
    """At this point; None: at the one they were bound to."""
    expired: list[Request] = field(default_factory=list)
    """Refuse these: they would be late, and a late answer is not wanted."""
    run_ms: float = 0.0
    """Predicted time of the run."""
    rest_ms: float = 0.0
    """Predicted time from now to the answers."""
    price: float = 0.0
    wake_ms: float | None = None
    """Run nothing before this time, unless more requests come to wait: company is worth it."""
    ended_ms: float = 0.0
    alone: bool = False
    """Once it ended: whether nobody else was inside."""
    inside: int = 0
    """How many were left for the engine and the decoders."""
    is_followed: bool = False
    """Whether others waited for the engine."""


class _Prospects:
    """The most that a request can still get by itself: accuracy in time less the price of it."""

    def __init__(
        self, table: CostTable, spread: Spread, price: float, allowed: Allowed, now_ms: float
    ) -> None:
        self._table = table
        self._spread = spread
        self._price = price
        self._allowed = allowed
        self._now_ms = now_ms
        self._slowest = table.points[-1].run_ms(1) + table.overhead_ms
        self._ample: dict[int, float] = {}
        """With all the time in the world, by the resolution that the pixels are good for."""

    def of(self, request: Request, after_ms: float = 0.0) -> float:
        """Per image, if it waits for so long first."""
        left = request.due_ms - self._now_ms - after_ms
        ample = left >= self._slowest * self._spread.bound and request.terms.resolution is None
        if ample and request.side in self._ample:
            return self._ample[request.side]
        best = 0.0
        for cost in self._table.points:
            if not self._allowed(request, cost):
                continue
            chance = 1.0
            if not ample:
                rest = cost.run_ms(request.images) + self._table.overhead_ms
                chance = self._spread.probability(left, rest)
            best = max(best, cost.accuracy * chance - self._price * cost.unit_ms)
        if ample:
            self._ample[request.side] = best
        return best


def choose(
    waiting: Sequence[Request],
    table: CostTable,
    load: Load,
    spread: Spread,
    now_ms: float,
    max_batch: int,
    allowed: Allowed,
) -> Plan:
    """Choose batch and point for `waiting`: one class of requests, most urgent first."""
    head = waiting[0]
    share = share_ms(head, load, now_ms)
    now_ms += load.running_ms  # when the engine gets to it
    price = table.price(share)
    prospects = _Prospects(table, spread, price, allowed, now_ms)
    floor = table.floor
    tight_ms = (floor.run_ms(1) + table.overhead_ms) * min(spread.bound, TUNING.room)
    best, least = Plan(price=price), float("inf")
    for cost in table.points:
        if not affordable(cost, share, table, head.terms):
            continue
        below = cost.accuracy < floor.accuracy
        # Below the floor only where a request has no time for more.
        can = [
            r for r in waiting if allowed(r, cost) and not (below and r.due_ms - now_ms > tight_ms)
        ]
        found = _batch(can, cost, table, spread, now_ms, max_batch) if can else None
        if found is None:
            continue
        batch, run, in_time = found
        cycle = run + table.handover_ms
        loss = price * cycle
        for request, chance in zip(batch, in_time, strict=True):
            loss += request.images * (prospects.of(request) - cost.accuracy * chance)
        others = [r for r in waiting[: TUNING.lookahead + len(batch)] if r not in batch]
        for request in others[: TUNING.lookahead]:
            loss += request.images * (prospects.of(request) - prospects.of(request, cycle))
        if loss < least:
            rest = run + table.overhead_ms
            best, least = Plan(batch, cost, run_ms=run, rest_ms=rest, price=price), loss
    return best


def hold(plan: Plan, coming: int, table: CostTable, spread: Spread, now_ms: float) -> float | None:
    """Until when a batch should stay open for requests that are being decoded.

    Only under a price, when engine time is short: a larger batch takes less of it per image, and
    while the engine rests the decoders have the cores. Never so long that a promise is at stake.
    """
    if plan.cost is None or plan.price <= 0 or not coming:
        return None
    images = sum(request.images for request in plan.run)
    if images >= plan.cost.best_batch:
        return None
    whole = plan.cost.run_ms(plan.cost.best_batch) + table.overhead_ms
    tightest = min(request.due_ms for request in plan.run) - whole * spread.bound
    oldest = min(request.waiting_ms for request in plan.run)
    until = min(tightest, oldest + TUNING.company * plan.run_ms)
    return until if until > now_ms else None


def _batch(
    can: list[Request],
    cost: PointCost,
    table: CostTable,
    spread: Spread,
    now_ms: float,
    max_batch: int,
) -> tuple[list[Request], float, list[float]] | None:
    """The batch at this point that gets the most done, its run time, everyone's chance in it.

    It grows in order of urgency as long as nobody in it loses the promise it could have alone. In a
    noisy spell that would forbid every batch, and with them the throughput that ends the spell.
    """
    bound, resolution = min(spread.bound, TUNING.room), cost.listing.point.resolution
    batch: list[Request] = []
    images, resized, tightest = 0, 0, float("inf")
    runs: list[float] = []
    each: list[float] = []
    for request in can:
        if batch and images + request.images > max_batch:
            break
        left = request.due_ms - now_ms
        images += request.images
        resized += (request.side != resolution) * request.images
        run = cost.run_ms(images) + resized * ASSUMED.resize_ms
        needed = (run + table.overhead_ms) * bound
        if batch and needed > min(tightest, left):
            break
        batch.append(request)
        if needed <= left:
            tightest = min(tightest, left)
        runs.append(run)
        each.append((run + table.handover_ms) / images)
    # A run cannot be interrupted: of those that get about as much done, the shortest.
    enough = (1.0 + TUNING.thin) * min(each)
    size = next(n for n, ms in enumerate(each, 1) if ms <= enough)
    batch, taken_ms = batch[:size], runs[size - 1]
    rest = taken_ms + table.overhead_ms
    certain = rest * spread.bound
    chances = [
        1.0 if certain <= r.due_ms - now_ms else spread.probability(r.due_ms - now_ms, rest)
        for r in batch
    ]
    return batch, taken_ms, chances
