"""Many replicas behind one router, on one virtual clock: each is a whole simulation of its own."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from san_core.frontier import OperatingPoint
from san_core.preprocessing import ImageHeader
from service.fleet.routing import ROUTERS, Choose, View
from service.latency.catalogue import Listing
from service.latency.model import Measurements, decode_work
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
    """One simulated service, and what it tells the router."""

    def __init__(
        self, host: HostModel, measured: Measurements, listings: list[Listing], seed: int
    ) -> None:
        self.policy = Ours(measured, listings, host)
        super().__init__(self.policy, host, measured, listings, seed)
        self.policy.drop = self.dropped
        self.view = View()
        self._reported_ms = float("-inf")

    def _answer(self, job: Job, point: OperatingPoint) -> None:
        super()._answer(job, point)
        self._comes_back()

    def _refuse(self, job: Job) -> None:
        super()._refuse(job)
        self._comes_back()

    def dropped(self, job: Job) -> None:
        """A job was given up; its client is told."""
        super().dropped(job)
        self._comes_back()

    def _comes_back(self) -> None:
        now, scheduler, report = self.machine.now, self.policy.scheduler, None
        if now - self._reported_ms >= _REPORT_MS:
            self._reported_ms = now
            decode = scheduler.model.decode_ms(_TYPICAL)
            report = reported(scheduler, now, lambda _: decode)

        def arrives() -> None:
            self.view.left()
            if report is not None:
                self.view.report(report, self.machine.now)

        self.machine.at(now + WAY_MS, arrives)


@dataclass
class Fleet:
    """Replicas and a router."""

    replicas: list[Replica]
    choose: Choose

    def run(self, trace: Sequence[Arrival]) -> Result:
        """Play a trace; the sum over all replicas."""
        replicas = self.replicas
        views = [replica.view for replica in replicas]
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
            budget = arrival.budget_ms or 2000.0
            i = self.choose(views, budget - 2 * WAY_MS, now)
            replica = replicas[i]
            replica.view.sent()
            replica.machine.advance(now)
            replica.arrive(arrival, now + WAY_MS)
            due[i] = replica.machine.advance(now)
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
    return Fleet(replicas, ROUTERS[router](random.Random(seed)))


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
