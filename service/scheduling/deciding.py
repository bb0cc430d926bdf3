"""What a request gets when its body is there: let in or not, and the point it may hope for.

Pure: a request, the costs, a snapshot of the load and the learnt spread in; a decision with its
reason out. No clock, no I/O, no state.

The point is tentative: it says how much of the image to decode. Which point runs is decided when
the engine is free (`dispatching`), unless nobody else is inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from san_core.frontier import OperatingPoint
from service.latency.quantiles import Chances, Spread, Spreads
from service.request.request import Request
from service.request.terms import OnMiss, Terms
from service.scheduling import reasons
from service.scheduling.pricing import CostTable, PointCost
from service.scheduling.schedule import Load
from service.scheduling.tuning import TUNING

_LONG_MS = 4 * TUNING.horizon_ms
"""A request that may wait longer than this counts as one that may wait this long."""


class Verdict(StrEnum):
    """What was decided."""

    SERVE = "serve"
    """The promise can be kept."""
    LATE = "late"
    """No point can keep it even on an idle service; the best expected accuracy in time."""
    IMPOSSIBLE = "impossible"
    """The same, and the client said to refuse."""
    OVERLOADED = "overloaded"
    """Only the load is in the way."""
    COLD = "cold"
    """A point fits once its weights are generated, and the client said to refuse until then."""
    INACCURATE = "inaccurate"
    """No point is as accurate as the client demands."""


@dataclass(slots=True)
class Option:
    """One point as one request sees it now; times are medians, from now to the answer."""

    cost: PointCost
    decode_ms: float
    cold_ms: float
    """Until the weights are ready; 0 if they are cached."""
    idle_ms: float
    """On an idle service with warm weights."""
    total_ms: float
    """Under this load."""
    in_time: float
    """The chance that it is in time."""
    accuracy: float = field(init=False)
    """Expected of an answer that is in time."""

    def __post_init__(self) -> None:
        self.accuracy = self.cost.accuracy


@dataclass(slots=True)
class Decision:
    """The chosen option, the verdict and a sentence for the client."""

    verdict: Verdict
    option: Option
    reason: str = ""
    share_ms: float = float("inf")
    price: float = 0.0
    given_up: float = 0.0
    """Accuracy that an idle service would have bought on top."""
    held_up: OperatingPoint | None = None
    """A more accurate point that only its cold weights keep from being chosen."""


def share_ms(request: Request, load: Load, now_ms: float) -> float:
    """The engine time one image may have.

    What there is until the deadlines of those that wait and a horizon beyond, over those that wait
    and those that are expected.
    """
    own, others = request.images, load.waiting
    if load.alone and load.rate * TUNING.horizon_ms < 1.0:
        return float("inf")  # nobody to share with
    left = min(_LONG_MS, max(0.0, request.left_ms(now_ms)))
    spare = (own * left + others * min(_LONG_MS, load.spare_ms)) / (own + others)
    time = max(0.0, spare - load.running_ms) + TUNING.horizon_ms
    return TUNING.usable * load.part * time / (own + others + load.rate * TUNING.horizon_ms)


def affordable(cost: PointCost, share: float, table: CostTable, terms: Terms) -> bool:
    """Whether a request may have a point: never above its share, nor for gains within the error."""
    if terms.resolution is not None or cost.unit_ms <= table.floor.unit_ms:
        return True
    if cost.luxury and terms.min_accuracy is None:
        return False
    return cost.unit_ms <= share


def options(
    request: Request,
    table: CostTable,
    load: Load,
    spreads: Spreads,
    now_ms: float,
    decode_ms: Callable[[int], float],
    cold_ms: Callable[[PointCost], float],
) -> list[Option]:
    """Every point of the table for this request."""
    left, chances = request.left_ms(now_ms), spreads.of(alone=load.alone, behind=request.behind)
    return [
        _option(cost, request.images, left, table, load, chances, decode_ms, cold_ms)
        for cost in table.points
    ]


def _option(
    cost: PointCost,
    images: int,
    left_ms: float,
    table: CostTable,
    load: Load,
    chances: Chances,
    decode_ms: Callable[[int], float],
    cold_ms: Callable[[PointCost], float],
) -> Option:
    decode, cold = decode_ms(cost.listing.point.resolution), cold_ms(cost)
    idle = decode + table.idle_overhead_ms
    idle += cost.alone_ms if images == 1 else cost.run_ms(images)
    if load.alone:
        total = idle + cold + load.running_ms
    else:
        decoding = table.decode_pace * (load.decode_ms + decode)
        before = max(decoding + cold, load.engine_ms + table.handover_ms)
        total = before + cost.run_ms(images) + table.overhead_ms
    return Option(cost, decode, cold, idle, total, chances.probability(left_ms, total))


def _certain(
    request: Request,
    table: CostTable,
    load: Load,
    spreads: Spreads,
    now_ms: float,
    decode_ms: Callable[[int], float],
    cold_ms: Callable[[PointCost], float],
) -> Decision | None:
    """The most accurate point for a lone request that has ample time: nothing is worth more."""
    share = share_ms(request, load, now_ms)
    if not load.alone or request.terms.min_accuracy is not None or table.price(share) > 0:
        return None
    left, images = request.left_ms(now_ms), request.images
    best = _option(table.best, images, left, table, load, spreads.alone, decode_ms, cold_ms)
    if best.cold_ms > 0 or best.in_time < TUNING.certain:
        return None
    return Decision(
        Verdict.SERVE, best, reasons.chosen(request, (best,), best, None, 0.0, now_ms), share
    )


def decide(
    request: Request,
    table: CostTable,
    load: Load,
    spreads: Spreads,
    now_ms: float,
    decode_ms: Callable[[int], float] = lambda _: 0.0,
    cold_ms: Callable[[PointCost], float] = lambda _: 0.0,
) -> Decision:
    """Let a request in or not, and choose the point it may hope for.

    Alone: the most accuracy in time, less what a chance below the promise costs. Under load: of the
    points that its share of the engine pays for and that keep the promise, the one with the most
    accuracy in time less the price of the engine time it takes.
    """
    certain = _certain(request, table, load, spreads, now_ms, decode_ms, cold_ms)
    if certain is not None:
        return certain
    found = options(request, table, load, spreads, now_ms, decode_ms, cold_ms)
    terms, left = request.terms, request.left_ms(now_ms)
    if terms.min_accuracy is not None:
        best = max(found, key=lambda option: option.accuracy)
        found = [o for o in found if o.accuracy >= terms.min_accuracy]
        if not found:
            return Decision(Verdict.INACCURATE, best, reasons.inaccurate(terms, best))
    else:
        found = [o for o in found if not o.cost.luxury]
    alone = spreads.alone
    target = spreads.of(alone=load.alone, behind=request.behind).target
    share = share_ms(request, load, now_ms)
    price = table.price(share)

    def worth(option: Option) -> float:
        short = max(0.0, target - option.in_time)
        return (
            option.accuracy * option.in_time - TUNING.broken * short - price * option.cost.unit_ms
        )

    paid = [o for o in found if affordable(o.cost, share, table, terms)]
    idle = max(
        (o for o in found if alone.probability(left, o.idle_ms) >= alone.target),
        key=lambda o: o.accuracy,
        default=None,
    )
    if load.alone:
        # A demanded accuracy can leave nothing that its share pays for.
        chosen: Option | None = max(paid or found, key=worth)
        assert chosen is not None
        if chosen.in_time < target:
            return _none_fits(request, found, chosen, idle, load, now_ms)
    else:
        floor = min(idle.accuracy, table.floor.accuracy) if idle is not None else 0.0
        kept = [o for o in paid if o.in_time >= target and o.accuracy >= floor]
        chosen = max(kept, key=worth, default=None)
        if chosen is None and idle is not None:
            # Those before it can be given the floor as well: then it may still be in time.
            chosen = _squeezed(request, found, load, spreads, table, floor, left)
    if chosen is None:
        hopeful = [o for o in found if o.in_time >= TUNING.best_effort]
        if price <= 0 and hopeful and terms.on_miss is OnMiss.ANSWER:
            # It costs nobody anything: the engine has time.
            best = max(hopeful, key=_expected)
            return Decision(Verdict.LATE, best, reasons.late(request, best, now_ms), share)
        likely = max(found, key=_expected)
        # Where it would be in time more often than not without the others, they are the reason.
        likes = [o for o in found if alone.probability(left, o.idle_ms) >= TUNING.likely]
        hoped = idle or max(likes, key=lambda o: o.accuracy, default=None)
        decision = _none_fits(request, found, likely, hoped, load, now_ms)
        decision.price = price
        return decision
    given_up = max(0.0, idle.accuracy - chosen.accuracy) if idle is not None else 0.0
    held_up = _held_up(found, chosen.accuracy, left, alone)
    reason = reasons.chosen(request, found, chosen, idle if given_up else None, price, now_ms)
    return Decision(Verdict.SERVE, chosen, reason, share, price, given_up, held_up)


def _expected(option: Option) -> tuple[float, float]:
    """Accuracy in time; of equals the faster."""
    return option.accuracy * option.in_time, -option.total_ms


def _squeezed(
    request: Request,
    found: Sequence[Option],
    load: Load,
    spreads: Spreads,
    table: CostTable,
    floor: float,
    left: float,
) -> Option | None:
    """The floor, if it keeps the promise once everyone before it has the floor too."""
    allowed = [o for o in found if o.accuracy >= floor]
    option = min(allowed, key=lambda o: (o.cost.unit_ms, -o.accuracy))
    decoding = table.decode_pace * (load.decode_ms + option.decode_ms)
    total = (
        max(decoding, load.least_ms + table.handover_ms)
        + option.cost.run_ms(request.images)
        + table.overhead_ms
    )
    chances = spreads.loaded(behind=request.behind)
    in_time = chances.probability(left, total)
    if in_time < chances.target:
        return None
    return Option(option.cost, option.decode_ms, 0.0, option.idle_ms, total, in_time)


def _held_up(
    found: Sequence[Option], accuracy: float, left: float, spread: Spread
) -> OperatingPoint | None:
    """The most accurate cold point above `accuracy` that would be in time if it were warm."""
    best = None
    for option in found:
        if option.cold_ms <= 0 or option.accuracy <= accuracy:
            continue
        if spread.probability(left, option.total_ms - option.cold_ms) >= spread.target:
            best, accuracy = option.cost.listing.point, option.accuracy
    return best


def _none_fits(
    request: Request,
    found: Sequence[Option],
    likely: Option,
    idle: Option | None,
    load: Load,
    now_ms: float,
) -> Decision:
    """No point keeps the promise: say whether that is due to the load, and serve if wanted."""
    left = request.left_ms(now_ms)
    fastest = min(found, key=lambda o: (o.total_ms, -o.accuracy))
    refuse = request.terms.on_miss is OnMiss.REFUSE
    in_no_hurry = load.alone or (request.terms.budget_ms is None and load.engine_ms <= left)
    if idle is not None and not (in_no_hurry and not refuse):
        if idle.cold_ms > 0 and load.alone:
            return Decision(Verdict.COLD, idle, reasons.cold(request, idle))
        return Decision(Verdict.OVERLOADED, fastest, reasons.overloaded(request, fastest, now_ms))
    if refuse:
        warm = min(found, key=lambda o: o.idle_ms)
        if _was_held_up(request, warm, now_ms):
            return Decision(Verdict.OVERLOADED, warm, reasons.overloaded(request, warm, now_ms))
        return Decision(Verdict.IMPOSSIBLE, warm, reasons.impossible(request, warm, now_ms))
    if load.engine_ms > request.patience_ms and not in_no_hurry:
        return Decision(Verdict.OVERLOADED, fastest, reasons.overloaded(request, fastest, now_ms))
    if likely.in_time <= reasons.HOPELESS:
        likely = fastest
    best = _held_up(found, likely.accuracy, left, _CERTAIN)
    return Decision(Verdict.LATE, likely, reasons.late(request, likely, now_ms), held_up=best)


def _was_held_up(request: Request, fastest: Option, now_ms: float) -> bool:
    """Whether it would fit but for the time it waited here, or in a proxy, before this decision."""
    left = request.left_ms(now_ms)
    waited = request.spent_ms(now_ms) - request.upload_ms
    feasible = request.idle is not None and request.idle.feasible
    return feasible and left < fastest.idle_ms <= left + waited


_CERTAIN = Spread(0.5, (1.0,))
