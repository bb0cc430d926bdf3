"""The scheduler of one bundle: it keeps what was learnt, asks the pure rules, and books the result.

The pipeline calls `admit` and `decide`, the executor `next`, `started` and `finished`; `answered`
teaches the spreads. A replay calls the same methods on a virtual clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass

from san_core.frontier import OperatingPoint
from service.latency.catalogue import Listing
from service.latency.model import LatencyModel
from service.latency.quantiles import Chances, Spread, Spreads
from service.request.request import Request, State
from service.request.terms import Terms
from service.scheduling import deciding, dispatching, reasons
from service.scheduling.costing import Costing
from service.scheduling.deciding import Decision, Verdict
from service.scheduling.dispatching import Plan
from service.scheduling.pricing import CostTable, Host, PointCost
from service.scheduling.rationing import Ration
from service.scheduling.schedule import Schedule
from service.scheduling.tuning import TUNING

_LOOK_MS = 500.0
"""How often it is looked whether a long run may begin: those that it would harm may have left."""


@dataclass
class Calibration:
    """Promises made and kept, for the metrics."""

    promised: int = 0
    kept: int = 0


@dataclass
class Scheduler:
    """Decides for the requests of one deployment."""

    model: LatencyModel
    schedule: Schedule
    frontier: InitVar[Sequence[Listing]]
    host: InitVar[Host | None] = None
    promise: float = 0.99
    max_batch: int = 8
    is_ready: Callable[[OperatingPoint], bool] = lambda _: True
    """Whether a point's weights are cached."""

    def __post_init__(self, frontier: Sequence[Listing], host: Host | None) -> None:
        self.whole, self.running = Spreads(self.promise), Spread(self.promise)
        self.calibration = Calibration()
        self.ration = Ration(self.promise)
        self.price = 0.0
        self.costing = Costing(self.model, frontier, host or Host(), self.max_batch)
        self._waiting: list[Request] = []
        self._ended_ms: float | None = None
        """When the last run ended, if requests waited then."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def spreads(self) -> dict[str, Chances]:
        """By what they are learnt from, for the metrics."""
        whole = self.whole
        return {
            "alone": whole.alone,
            "busy": whole.busy,
            "behind": whole.behind,
            "running": self.running,
        }

    def smallest_budget_ms(self, listing: Listing, decode_ms: float) -> float:
        """What a lone request must allow for a point to be promised."""
        idle = decode_ms + self.model.forward_ms(listing.shape) + self.model.overhead_ms()
        return idle * self.whole.alone.bound

    def table(self, now_ms: float, listings: Sequence[Listing] | None = None) -> CostTable:
        """What every point costs now."""
        if self.costing.is_old(now_ms):
            self.whole.busy.forget(now_ms)
            self.whole.behind.forget(now_ms)
        return self.costing.table(now_ms, listings)

    def admit(self, request: Request, now_ms: float) -> str | None:
        """Note an arrival; say why it is refused if the load alone already makes it late."""
        table = self.table(now_ms)
        self.schedule.arrived(request, now_ms, table.hull[-1][0])
        self.ration.came(request.client, request.terms.budget_ms, now_ms)
        load = self.schedule.load(request, now_ms)
        if load.alone:
            return None
        cost = table.cheapest
        least, left = cost.run_ms(request.images) + table.overhead_ms, request.left_ms(now_ms)
        # Its body will wait for the event loop as long as its headers did.
        total = request.spent_ms(now_ms) + load.least_ms + table.handover_ms + least
        alone, busy = self.whole.alone, self.whole.loaded(behind=request.behind)
        crowded = self.price > 0 or request.behind
        if busy.probability(left, total) >= (busy.target if crowded else TUNING.likely):
            return None
        if alone.probability(left, least) < alone.target:
            return None
        self.schedule.refused(now_ms)
        return (
            f"The load leaves no room for {request.allowed_ms:g} ms: even the fastest point "
            f"would take {total:.0f} ms."
        )

    def decide(
        self,
        request: Request,
        now_ms: float,
        listings: Sequence[Listing] | None = None,
        decode_ms: Callable[[int], float] = lambda _: 0.0,
    ) -> Decision:
        """Decide for a request whose body is there; book it if it is served."""
        self.costing.learn_decode(request, decode_ms, now_ms)
        table, load = self.table(now_ms, listings), self.schedule.load(request, now_ms)
        decision = deciding.decide(
            request, table, load, self.whole, now_ms, decode_ms, self._cold_ms
        )
        self.price = decision.price
        option = decision.option
        if decision.verdict is Verdict.OVERLOADED:
            self.schedule.refused(now_ms)
        if decision.verdict not in (Verdict.SERVE, Verdict.LATE):
            return decision
        listing = option.cost.listing
        spread = self.whole.of(alone=load.alone, behind=request.behind)
        request.alone = load.alone
        request.point, request.side = listing.point, listing.point.resolution
        request.reason, request.expected_accuracy = decision.reason, listing.accuracy
        request.accuracy_source = listing.accuracy_source
        if listing.accuracy is not None:
            request.given_up = decision.given_up
        request.predicted_ms = request.spent_ms(now_ms) + option.total_ms
        request.estimated = listing.shape not in self.model.measurements.curves
        bound = spread.bound_ms(option.total_ms)
        request.bound_ms = request.spent_ms(now_ms) + bound
        request.promised = decision.verdict is Verdict.SERVE
        if option.in_time < TUNING.likely:
            # It will hardly be in time: it must not push aside what can.
            request.due_ms = now_ms + bound
        request.decode_ms = option.decode_ms
        request.work_ms = option.cost.unit_ms * request.images
        request.least_ms = min(request.work_ms, table.floor.unit_ms * request.images)
        request.decided_ms = now_ms
        request.rest_ms = option.total_ms
        if self._is_long(request, now_ms):
            request.behind = True  # it may have to wait, and nobody must wait for it
        self.schedule.enter(request, now_ms)
        return decision

    def preview(
        self,
        request: Request,
        now_ms: float,
        listings: Sequence[Listing] | None = None,
        decode_ms: Callable[[int], float] = lambda _: 0.0,
    ) -> Decision:
        """What would be decided; nothing is booked."""
        table, load = self.table(now_ms, listings), self.schedule.load(request, now_ms)
        return deciding.decide(request, table, load, self.whole, now_ms, decode_ms, self._cold_ms)

    def outlook(
        self, now_ms: float, decode_ms: Callable[[int], float]
    ) -> list[tuple[Listing, float]]:
        """Every point with the time that a request coming now would have to allow for it."""
        request = Request("outlook", Terms(), now_ms)
        table, load = self.table(now_ms), self.schedule.load(request, now_ms)
        found = deciding.options(request, table, load, self.whole, now_ms, decode_ms, self._cold_ms)
        chances = self.whole.of(alone=load.alone)
        return [(o.cost.listing, chances.bound_ms(o.total_ms)) for o in found]

    def _cold_ms(self, cost: PointCost) -> float:
        listing = cost.listing
        return 0.0 if self.is_ready(listing.point) else self.model.build_ms(listing.point.precision)

    def wait(self, request: Request, now_ms: float) -> None:
        """Its pixels are there: it waits for the engine."""
        request.decode_ms = 0.0
        request.state = State.WAITING
        request.waiting_ms = now_ms
        self._waiting.append(request)

    def leave(self, request: Request, now_ms: float) -> None:
        """A request is answered, refused or abandoned; harmless if done twice."""
        if request.state is State.WAITING:
            self._waiting.remove(request)
        self.schedule.leave(request, now_ms)

    def next(self, now_ms: float, wants_late: Callable[[Request], bool]) -> Plan:
        """What the engine does now, or as soon as what it runs is done."""
        expired = self._sweep(now_ms, wants_late)
        if not self._waiting:
            return Plan(expired=expired)
        ready = self._waiting
        if now_ms < self.ration.until_ms:
            ready = [r for r in ready if not self._is_long(r, now_ms)]
            if not ready:
                return Plan(expired=expired, wake_ms=min(self.ration.until_ms, now_ms + _LOOK_MS))
        table = self.table(now_ms)
        first = ready[0]
        assert first.point is not None
        lone = first.alone and len(self._waiting) == 1
        if lone and first.direct:
            # Nothing changed since its point was chosen; what was predicted then has yet to come.
            plan = Plan([first], None, run_ms=first.rest_ms, rest_ms=first.rest_ms)
        elif lone or not self._is_open(first.point, table):
            plan = self._as_bound(first, ready, table, now_ms)
        else:
            same = [
                r
                for r in ready
                if r.behind == first.behind and r.terms.priority == first.terms.priority
            ]
            load = self.schedule.load(first, now_ms)
            most = self._most_together(first, now_ms)
            plan = dispatching.choose(same, table, load, self.running, now_ms, most, self._allowed)
            if not plan.run:
                plan = self._as_bound(first, ready, table, now_ms)
            self.price = plan.price
            free_ms = now_ms + load.running_ms
            until = dispatching.hold(plan, self.schedule.decoding, table, self.running, free_ms)
            if until is not None:
                plan = Plan(price=plan.price, wake_ms=until)
        plan.expired = expired
        return plan

    def _limit_ms(self, request: Request, now_ms: float) -> float:
        slowest = self.table(now_ms).points[-1]
        return self.ration.limit_ms(request.client, slowest.run_ms(1), now_ms)

    def _run_ms(self, point: OperatingPoint, images: int) -> float:
        return self.model.busy_pace * self.model.base_ms(
            (point.resolution, point.precision), images
        )

    def _is_long(self, request: Request, now_ms: float) -> bool:
        """Whether its run, which nothing interrupts, is too long for others who are here."""
        if not self.ration.has_others(request.client, now_ms):
            return False
        assert request.point is not None
        return self._run_ms(request.point, request.images) > self._limit_ms(request, now_ms)

    def _most_together(self, first: Request, now_ms: float) -> int:
        """How many images make a batch that is not too long for others who are here."""
        if not self.ration.has_others(first.client, now_ms):
            return self.max_batch
        assert first.point is not None
        limit, most = self._limit_ms(first, now_ms), self.max_batch
        while most > 1 and self._run_ms(first.point, most) > limit:
            most -= 1
        return most

    def _is_open(self, point: OperatingPoint, table: CostTable) -> bool:
        """Whether a request at this point may still be given another."""
        return self.is_ready(point) and any(c.listing.point == point for c in table.points)

    def _allowed(self, request: Request, cost: PointCost) -> bool:
        point, terms = cost.listing.point, request.terms
        if point == request.point:
            return True
        return (
            point.resolution <= request.side
            and terms.resolution is None
            and terms.mode is None
            and terms.precision is None
            and (terms.min_accuracy is None or cost.accuracy >= terms.min_accuracy)
            and self.is_ready(point)
        )

    def _as_bound(
        self, first: Request, ready: Sequence[Request], table: CostTable, now_ms: float
    ) -> Plan:
        """Run a request at its own point, with those that share it."""
        batch: list[Request] = []
        images, most = 0, self._most_together(first, now_ms)
        for request in ready:
            if request.point == first.point and (not batch or images + request.images <= most):
                batch.append(request)
                images += request.images
        assert first.point is not None
        run = self._run_ms(first.point, images)
        return Plan(batch, None, run_ms=run, rest_ms=run + table.overhead_ms)

    def _sweep(self, now_ms: float, wants_late: Callable[[Request], bool]) -> list[Request]:
        """Order those who wait; take out those who would be late and do not want that."""
        table = self.table(now_ms)
        fastest, free_ms = table.points[0], now_ms + self.schedule.running_ms(now_ms)
        alone_ms = free_ms + fastest.alone_ms + table.idle_overhead_ms
        busy_ms = free_ms + fastest.run_ms(1) + table.overhead_ms

        def is_late(request: Request) -> bool:
            # What was learnt under load must not end a request that found nobody else.
            return (alone_ms if request.alone else busy_ms) > request.due_ms

        expired, kept = [], []
        for request in self._waiting:
            if is_late(request) and not wants_late(request):
                expired.append(request)
                self.schedule.leave(request, now_ms)
            else:
                kept.append(request)
        kept.sort(key=lambda r: (is_late(r), r.terms.priority, r.behind, r.due_ms))
        self._waiting = kept
        return expired

    def started(self, plan: Plan, now_ms: float) -> None:
        """The engine takes this plan."""
        wait_ms = self.schedule.running_ms(now_ms)
        for request in plan.run:
            if plan.cost is not None and plan.cost.listing.point != request.point:
                listing, wanted = plan.cost.listing, request.point
                assert wanted is not None
                request.point = listing.point
                request.reason = reasons.lowered(wanted, listing.point, plan.price)
                if listing.accuracy is not None and request.expected_accuracy is not None:
                    lost = request.expected_accuracy - listing.accuracy
                    request.given_up = max(0.0, request.given_up + lost)
                request.expected_accuracy = listing.accuracy
                request.accuracy_source = listing.accuracy_source
            request.dispatched_ms = now_ms
            request.after_ms = wait_ms + plan.rest_ms
        if plan.run and self._is_long(plan.run[0], now_ms):
            self.ration.ran(plan.run_ms, now_ms)
        taken = set(map(id, plan.run))
        self._waiting = [r for r in self._waiting if id(r) not in taken]
        self.schedule.started(plan.run, now_ms + wait_ms + plan.run_ms)

    def finished(self, plan: Plan, now_ms: float) -> None:
        """A plan was run. What it teaches can wait until its answers are sent: `learn`."""
        schedule, run = self.schedule, plan.run
        plan.alone = len(schedule) == len(run) == 1
        for request in run:
            schedule.leave(request, now_ms)
        plan.ended_ms, plan.inside, plan.is_followed = now_ms, schedule.busy, bool(self._waiting)

    def learn(self, plan: Plan, run: tuple[float, float] | None) -> None:
        """A finished plan ran from when to when; None if that teaches nothing."""
        images, point = sum(r.images for r in plan.run), plan.run[0].point
        self.costing.learn_cycle(plan, point, images)
        self.costing.learnt()
        if run is None or point is None:
            return
        begun_ms, ended_ms = run
        if self._ended_ms is not None:
            self.model.observe_handover(begun_ms - self._ended_ms)
        self._ended_ms = ended_ms if plan.is_followed else None
        beside = 0.0 if plan.alone else self.costing.beside_ms(point.resolution, images)
        shape = (point.resolution, point.precision)
        self.model.observe_forward(
            shape, images, ended_ms - begun_ms, alone=plan.alone, beside_ms=beside
        )

    def answered(self, request: Request, now_ms: float) -> None:
        """A request ran its course: learn how far its predictions were off."""
        timing, took = request.timing, now_ms - request.decided_ms
        alone, staged = request.alone, timing.staged - timing.receive
        ran = request.dispatched_ms > 0  # else it was given up while it waited
        kept = ran and request.in_time(now_ms)
        if ran:
            self.model.observe_overhead(took - staged, alone=alone and not request.joined)
        if ran and alone and not request.joined:
            self.whole.alone.learn(now_ms, took / request.rest_ms)
        elif request.promised and not alone:
            # A flood's first requests came before it was known as one.
            behind = request.behind or self.schedule.is_behind(request.client)
            client_ms = now_ms + TUNING.unseen * request.allowed_ms
            self.whole.loaded(behind=behind).learn(now_ms, kept=ran and request.in_time(client_ms))
        if not request.alone and request.after_ms:
            self.running.learn(now_ms, (now_ms - request.dispatched_ms) / request.after_ms)
        if request.promised and request.terms.budget_ms is not None:
            self.calibration.promised += 1
            self.calibration.kept += kept
        self.costing.learnt()
        self.table(now_ms)  # now, and not on the next client's time
