"""What the engine runs next: which requests, together, at which point. Chosen when it is free.

Pure, like `deciding`: the requests that wait, the costs, the load and the spread in; a plan out.
Batch and point are chosen together: for each point the batch that gets the most done while it
keeps every promise in it, and of these the one with the most accuracy in time per image, less the
price of its engine time and less what those lose who are left behind.
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


@dataclass(slots=True)
class _Candidate:
    cost: PointCost
    batch: list[Request]
    run_ms: float
    value: float


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
    price = table.price(share)
    best: _Candidate | None = None
    floor = table.hull[0][1]
    for cost in table.points:
        if not affordable(cost, share, table, load, pinned=head.terms.resolution is not None):
            continue
        can = [r for r in waiting if allowed(r, cost)]
        if not can:
            continue
        if cost.accuracy < floor:
            # Below the floor only where a request's own budget is too tight for more.
            can = [r for r in can if r.work_ms <= cost.unit_ms * r.images]
            if not can:
                continue
        found = _batch(can, cost, table, spread, now_ms, max_batch)
        if found is None:
            continue
        batch, run, gain = found
        images = sum(r.images for r in batch)
        left = [r for r in waiting[: TUNING.lookahead + len(batch)] if r not in batch]
        loss = sum(_loss(r, run, table, spread, now_ms) for r in left[: TUNING.lookahead])
        value = (gain - price * (run + table.handover_ms) - loss) / images
        if best is None or value > best.value:
            best = _Candidate(cost, batch, run, value)
    if best is None:
        return Plan(price=price)
    rest = best.run_ms + table.overhead_ms
    return Plan(best.batch, best.cost, run_ms=best.run_ms, rest_ms=rest, price=price)


def _batch(
    can: list[Request],
    cost: PointCost,
    table: CostTable,
    spread: Spread,
    now_ms: float,
    max_batch: int,
) -> tuple[list[Request], float, float] | None:
    """The batch at this point that gets the most done, its run time and its accuracy in time.

    It grows in order of urgency as long as nobody in it loses the promise it could have alone.
    """
    bound, promise = spread.bound, spread.promise
    best: tuple[list[Request], float, float] | None = None
    batch: list[Request] = []
    images, resized, tightest, quickest = 0, 0, float("inf"), float("inf")
    for request in can:
        if batch and images + request.images > max_batch:
            break
        left = request.due_ms - now_ms
        images += request.images
        resized += (request.side != cost.listing.point.resolution) * request.images
        run = cost.run_ms(images) + resized * ASSUMED.resize_ms
        rest = run + table.overhead_ms
        if batch and rest * bound > min(tightest, left):
            break
        batch.append(request)
        if rest * bound <= left:
            tightest = min(tightest, left)
        each = (run + table.handover_ms) / images
        if each <= quickest:
            gain = cost.accuracy * sum(
                r.images
                * (
                    1.0
                    if rest * bound <= r.due_ms - now_ms
                    else min(promise, spread.probability((r.due_ms - now_ms) / rest))
                )
                for r in batch
            )
            best, quickest = (list(batch), run, gain), each
    return best


def _loss(
    request: Request, run_ms: float, table: CostTable, spread: Spread, now_ms: float
) -> float:
    """Accuracy in time that a request loses if it waits for a run of so long."""
    left = request.due_ms - now_ms
    after = left - run_ms - table.handover_ms
    slowest = table.points[-1].run_ms(request.images) + table.overhead_ms
    if after >= slowest * spread.bound:
        return 0.0
    now, later = (_best_alone(request, ms, table, spread) for ms in (left, after))
    return max(0.0, now - later) * request.images


def _best_alone(request: Request, left_ms: float, table: CostTable, spread: Spread) -> float:
    if left_ms <= 0:
        return 0.0
    return max(
        cost.accuracy * spread.probability(left_ms / (cost.run_ms(request.images) + table.overhead_ms))
        for cost in table.points
    )
