"""Many replicas behind routers, on one virtual clock: each replica is a simulation of its own."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from san_core.frontier import OperatingPoint
from san_core.preprocessing import ImageHeader
from service.fleet.headroom import Headroom
from service.fleet.routing import ROUTERS, Choose, View
from service.latency.catalogue import Listing
from service.latency.curves import Measurements
from service.latency.decode_cost import decode_work
from service.replay.machine import HostModel, reference
from service.replay.policies import Ours
from service.replay.simulation import PREPROCESSING, Job, Result, Simulation
from service.replay.traces import MIXED, UNIT_PER_S, Arrival, varying
from service.scheduling.reporting import reported

WAY_MS = 0.5
"""Between router and replica, each way: what a router knows is at least so old."""
_REPORT_MS = 5.0
"""A replica makes a report at most so often, as in the service."""
_TYPICAL = decode_work(ImageHeader("JPEG", 500, 375), 50_000, PREPROCESSING.least_side(224))


class Replica(Simulation):
    """One simulated service, and what it tells the routers."""

    def __init__(
        self, host: HostModel, measured: Measurements, listings: list[Listing], seed: int
    ) -> None:
        self.policy = Ours(measured, listings, host)
        super().__init__(self.policy, host, measured, listings, seed)
        self.policy.drop = self.dropped
        self._senders: dict[int, View] = {}
        """By arrival, how the router that sent it sees this replica."""
        self._report: Headroom | None = None
        self._reported_ms = float("-inf")

    def sent(self, arrival: Arrival, view: View, now_ms: float) -> None:
        """A router sends a request."""
        view.sent(now_ms)
        self._senders[id(arrival)] = view
        self.machine.advance(now_ms)
        self.arrive(arrival, now_ms + WAY_MS)

    def _answer(self, job: Job, point: OperatingPoint) -> None:
        super()._answer(job, point)
        self._comes_back(job)

    def _refuse(self, job: Job) -> None:
        super()._refuse(job)
        self._comes_back(job)

    def dropped(self, job: Job) -> None:
        """A job was given up; its client is told."""
        super().dropped(job)
        self._comes_back(job)

    def _comes_back(self, job: Job) -> None:
        now, scheduler = self.machine.now, self.policy.scheduler
        if now - self._reported_ms >= _REPORT_MS:
            self._reported_ms = now
            decode = scheduler.model.decode_ms(_TYPICAL)
            self._report = reported(scheduler, now, lambda _: decode)
        report, view = self._report, self._senders.pop(id(job.arrival))

        def arrives() -> None:
            view.left(self.machine.now)
            if report is not None:
                view.report(report, self.machine.now)

        self.machine.at(now + WAY_MS, arrives)


class Router:
    """Chooses among replicas; it knows only what it sent, and what came back to it."""

    def __init__(self, choose: Choose, replicas: int) -> None:
        self.choose = choose
        self.views = [View() for _ in range(replicas)]


@dataclass
class Fleet:
    """Replicas, and routers that share the traffic evenly."""

    replicas: list[Replica]
    routers: list[Router]
    seed: int = 1

    def run(self, trace: Sequence[Arrival]) -> Result:
        """Play a trace; the sum over all replicas."""
        replicas, chance = self.replicas, random.Random(self.seed)
        upcoming = [(0.0, i) for i in range(len(replicas))]
        due = [0.0] * len(replicas)
        for arrival in trace:
            now = arrival.at_ms
            while upcoming and upcoming[0][0] <= now:
                at, i = heapq.heappop(upcoming)
                if at != due[i]:
                    continue  # an older entry of the same replica
                due[i] = replicas[i].machine.advance(now)
                if due[i] != float("inf"):
                    heapq.heappush(upcoming, (due[i], i))
            router = chance.choice(self.routers)
            budget = arrival.budget_ms or 2000.0
            i = router.choose(router.views, budget - 2 * WAY_MS, now)
            replicas[i].sent(arrival, router.views[i], now)
            due[i] = replicas[i].machine.advance(now)
            heapq.heappush(upcoming, (due[i], i))
        total = Result()
        for replica in replicas:
            replica.machine.run()
            total.add(replica.result)
        return total


def make_fleet(
    size: int,
    router: str,
    host: HostModel | None = None,
    measured: Measurements | None = None,
    paces: Sequence[float] = (1.0,),
    seed: int = 1,
    routers: int = 1,
) -> Fleet:
    """`size` replicas; `paces` are given out in turn (2: half as fast as it was measured)."""
    known, listings = reference()
    measured = measured or known
    listings = [x for x in listings if x.shape in measured.curves]
    replicas = [
        Replica(
            replace(host or HostModel(), pace=paces[i % len(paces)]), measured, listings, seed + i
        )
        for i in range(size)
    ]
    return Fleet(
        replicas,
        [Router(ROUTERS[router](random.Random(seed + n)), size) for n in range(routers)],
        seed,
    )


def bursty(size: int, load: float, seconds: float, seed: int = 1) -> list[Arrival]:
    """For `size` replicas: half a second at four times the rate after every second at 0.3 times.

    `load` is the mean, in units of what a fixed 224 px server carries; budgets are mixed.
    """
    chance = random.Random(1000 + seed)
    mean = (4.0 * 0.5 + 0.3 * 1.0) / 1.5
    base = size * UNIT_PER_S * load / mean

    def rate(at: float) -> float:
        return base * (4.0 if at % 1.5 >= 1.0 else 0.3)

    return [
        Arrival(at, budget_ms=chance.choice(MIXED)) for at in varying(rate, 4 * base, seconds, seed)
    ]
