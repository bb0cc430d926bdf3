"""What can be replayed: the service's own scheduler, and rivals on the same machine."""

# ruff: noqa: D102  `Policy` says what each method is for

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from san_core.frontier import OperatingPoint
from service.latency.catalogue import Listing
from service.latency.curves import Measurements
from service.latency.model import LatencyModel
from service.replay.machine import HostModel
from service.replay.simulation import Job
from service.scheduling.deciding import Verdict
from service.scheduling.dispatching import Plan
from service.scheduling.pricing import Host
from service.scheduling.schedule import Schedule
from service.scheduling.scheduler import Scheduler

Drop = Callable[[Job], None]


class Ours:
    """The service's scheduler."""

    def __init__(self, measured: Measurements, listings: list[Listing], host: HostModel) -> None:
        self.scheduler = Scheduler(
            LatencyModel(measured),
            Schedule(host.decode_threads),
            listings,
            Host(host.cores, host.decode_threads, host.engine_threads > 0),
        )
        self.drop: Drop = lambda _: None
        self.wake: Callable[[float], None] = lambda _: None
        self._jobs: dict[int, Job] = {}
        self._plan, self._begun_ms = Plan(), 0.0

    def admit(self, job: Job, now_ms: float) -> bool:
        return self.scheduler.admit(job.request, now_ms) is None

    def decide(self, job: Job, now_ms: float) -> int | None:
        decision = self.scheduler.decide(
            job.request, now_ms, decode_ms=lambda t: self.scheduler.model.decode_ms(job.work(t))
        )
        if decision.verdict not in (Verdict.SERVE, Verdict.LATE):
            return None
        job.request.direct = job.request.alone
        self._jobs[id(job.request)] = job
        return job.request.side

    def decoded(self, job: Job, took_ms: float, now_ms: float) -> None:
        request, model = job.request, self.scheduler.model
        model.observe_decode(job.work(request.side), took_ms, alone=request.alone)
        self.scheduler.wait(request, now_ms)

    def batch(self, now_ms: float) -> tuple[list[Job], OperatingPoint] | None:
        plan = self.scheduler.next(now_ms, lambda _: False)
        for request in plan.expired:
            self.scheduler.answered(request, now_ms)
            self.drop(self._jobs.pop(id(request)))
        if plan.wake_ms is not None:
            self.wake(plan.wake_ms)
        if not plan.run:
            return None
        self.scheduler.started(plan, now_ms)
        self._plan, self._begun_ms = plan, now_ms
        point = plan.run[0].point
        assert point is not None
        return [self._jobs[id(request)] for request in plan.run], point

    def finished(self, jobs: list[Job], took_ms: float, now_ms: float) -> None:  # noqa: ARG002
        self.scheduler.finished(self._plan, now_ms)
        self.scheduler.learn(self._plan, (self._begun_ms, self._begun_ms + took_ms))

    def answered(self, job: Job, now_ms: float) -> None:
        self.scheduler.answered(job.request, now_ms)
        self._jobs.pop(id(job.request), None)


@dataclass
class Fixed:
    """One point, first come first served, as large a batch as waits: a server without a policy."""

    measured: Measurements
    listings: list[Listing]
    resolution: int = 224
    dropping: bool = False
    """Drop what its deadline has passed, or would pass before the answer."""
    max_batch: int = 8
    queue: list[Job] = field(default_factory=list)
    drop: Drop = lambda _: None
    wake: Callable[[float], None] = lambda _: None

    def __post_init__(self) -> None:
        self.point = next(
            x.point
            for x in self.listings
            if x.point.resolution == self.resolution and x.point.precision == "int8"
        )

    def admit(self, job: Job, now_ms: float) -> bool:  # noqa: ARG002
        return True

    def decide(self, job: Job, now_ms: float) -> int | None:  # noqa: ARG002
        job.request.side = self.resolution
        return self.resolution

    def decoded(self, job: Job, took_ms: float, now_ms: float) -> None:  # noqa: ARG002
        self.queue.append(job)

    def batch(self, now_ms: float) -> tuple[list[Job], OperatingPoint] | None:
        if self.dropping:
            soonest = now_ms + self.run_ms(self.point, 1)
            for job in [j for j in self.queue if j.request.deadline_ms < soonest]:
                self.queue.remove(job)
                self.drop(job)
        if not self.queue:
            return None
        batch, self.queue = self.queue[: self.max_batch], self.queue[self.max_batch :]
        return batch, self.point

    def run_ms(self, point: OperatingPoint, n: int) -> float:
        return self.measured.curves[point.resolution, point.precision].at(n)

    def finished(self, jobs: list[Job], took_ms: float, now_ms: float) -> None:
        pass

    def answered(self, job: Job, now_ms: float) -> None:
        pass


@dataclass
class _Late(Fixed):
    """Binds when the engine is free; drops what cannot be in time even at the fastest point."""

    overhead_ms: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.points = [x.point for x in self.listings]

    def batch(self, now_ms: float) -> tuple[list[Job], OperatingPoint] | None:
        self.queue.sort(key=lambda job: job.request.deadline_ms)
        soonest = now_ms + self.run_ms(self.points[0], 1) + self.overhead_ms
        for job in [j for j in self.queue if j.request.deadline_ms < soonest]:
            self.queue.remove(job)
            self.drop(job)
        if not self.queue:
            return None
        slack = self.queue[0].request.deadline_ms - now_ms - self.overhead_ms
        n, point = self.pick(slack, min(len(self.queue), self.max_batch))
        batch, self.queue = self.queue[:n], self.queue[n:]
        return batch, point

    def pick(self, slack: float, waiting: int) -> tuple[int, OperatingPoint]:
        raise NotImplementedError


@dataclass
class SlackFit(_Late):
    """SuperServe (NSDI'25): the (point, batch) whose time is closest below the head's slack."""

    def pick(self, slack: float, waiting: int) -> tuple[int, OperatingPoint]:
        fits = [
            (self.run_ms(p, n), n, p)
            for p in self.points
            for n in (1, 2, 4, 8)
            if self.run_ms(p, n) <= slack
        ]
        if not fits:
            return 1, self.points[0]
        _, n, point = max(fits, key=lambda x: (x[0], x[1]))
        return min(n, waiting), point


@dataclass
class MaxAccuracy(_Late):
    """The most accurate point that the head's slack allows, then as many as fit."""

    def pick(self, slack: float, waiting: int) -> tuple[int, OperatingPoint]:
        for point in sorted(self.points, key=lambda p: -self.run_ms(p, 1)):
            fits = [n for n in range(1, waiting + 1) if self.run_ms(point, n) <= slack]
            if fits:
                return fits[-1], point
        return 1, self.points[0]


@dataclass
class MaxBatch(_Late):
    """As many as wait, then the most accurate point that the head's slack allows for them."""

    def pick(self, slack: float, waiting: int) -> tuple[int, OperatingPoint]:
        for n in range(waiting, 0, -1):
            fits = [p for p in self.points if self.run_ms(p, n) <= slack]
            if fits:
                return n, max(fits, key=lambda p: self.run_ms(p, n))
        return 1, self.points[0]
