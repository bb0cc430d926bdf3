"""Rivals that decide by shares or by sums: what the scheduler is compared with, besides the plain.

`Previous` is the policy of the release before this scheduler. `EarlyShares` and `LateShares` use
the same rule of shares as ours, in its simplest form, and differ in when they bind: on arrival, or
when the engine is free.
"""

# ruff: noqa: D102  `Policy` says what each method is for

from __future__ import annotations

from dataclasses import dataclass, field

from san_core.frontier import OperatingPoint
from service.replay.machine import HostModel
from service.replay.policies import Fixed
from service.replay.simulation import Job


@dataclass
class _Informed(Fixed):
    """Knows the median of every time, the requests inside, and how fast others arrive."""

    host: HostModel = field(default_factory=HostModel)
    inside: dict[int, tuple[Job, OperatingPoint]] = field(default_factory=dict)
    run_until_ms: float = 0.0
    rates: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Arrivals per ms: a slow average, and a fast one for bursts."""
    seen_ms: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.accuracy = {x.point: x.rank for x in self.listings}
        self.points = sorted(self.accuracy, key=lambda p: self.run_ms(p, 1))

    def overhead_ms(self) -> float:
        return self.host.answer_ms + self.host.handover_ms

    def admit(self, job: Job, now_ms: float) -> bool:  # noqa: ARG002
        gone, self.seen_ms = max(now_ms - self.seen_ms, 1e-3), now_ms
        for i, memory_ms in enumerate((400.0, 60.0)):
            weight = min(1.0, gone / memory_ms)
            self.rates[i] += weight * (1.0 / gone - self.rates[i])
        return True

    def enter(self, job: Job, point: OperatingPoint) -> int:
        job.request.point, job.request.side = point, point.resolution
        self.inside[id(job)] = job, point
        return point.resolution

    def unit_ms(self, point: OperatingPoint, job: Job) -> float:
        """Time of the machine that an image takes in its best batch."""
        run = min(
            (self.run_ms(point, n) + self.host.handover_ms) / n
            for n in range(1, self.max_batch + 1)
        )
        beside = job.decode_ms(point.resolution) + self.host.receive_ms + self.host.answer_ms
        return run + beside / self.host.cores

    def ahead_ms(self, job: Job, now_ms: float, *, point: OperatingPoint | None = None) -> float:
        """Work that goes before; `point`: if everyone were given that."""
        work = max(0.0, self.run_until_ms - now_ms)
        for other, given in self.inside.values():
            if other.request.deadline_ms <= job.request.deadline_ms:
                work += self.unit_ms(point or given, other)
        return work

    def batch(self, now_ms: float) -> tuple[list[Job], OperatingPoint] | None:
        """Earliest deadline first; those of one point together, while all stay in time."""
        self.queue.sort(key=lambda job: job.request.deadline_ms)
        soonest = now_ms + self.run_ms(self.points[0], 1) + self.overhead_ms()
        for job in [j for j in self.queue if j.request.deadline_ms < soonest]:
            self.queue.remove(job)
            self.inside.pop(id(job), None)
            self.drop(job)
        if not self.queue:
            return None
        jobs, point = self.pick_jobs(now_ms)
        taken = set(map(id, jobs))
        self.queue = [job for job in self.queue if id(job) not in taken]
        for job in jobs:
            self.inside.pop(id(job), None)
        self.run_until_ms = now_ms + self.run_ms(point, len(jobs))
        return jobs, point

    def pick_jobs(self, now_ms: float) -> tuple[list[Job], OperatingPoint]:
        _, point = self.inside[id(self.queue[0])]
        same = [job for job in self.queue if self.inside[id(job)][1] == point]
        return same[: self.most(same, point, now_ms)], point

    def most(self, jobs: list[Job], point: OperatingPoint, now_ms: float) -> int:
        """How many of these, most urgent first, can run together before the first is late."""
        left = jobs[0].request.deadline_ms - now_ms - self.overhead_ms()
        fits = [
            n
            for n in range(1, min(self.max_batch, len(jobs)) + 1)
            if n == 1 or self.run_ms(point, n) <= left
        ]
        return fits[-1]


@dataclass
class Previous(_Informed):
    """The most accurate point whose upper quantiles, queue and reserve add up to the time left.

    Bound on arrival. The queue counts 1.25 times, and the most accurate point must leave three
    times the queue free; a time's 99th percentile is 1.35 times its median.
    """

    upper: float = 1.35
    queue_safety: float = 1.25
    reserve: float = 3.0

    def decide(self, job: Job, now_ms: float) -> int | None:
        left = job.request.left_ms(now_ms)
        ahead = max(0.0, self.run_until_ms - now_ms)
        decoding = 0.0
        for other, point in self.inside.values():
            if other.request.deadline_ms <= job.request.deadline_ms:
                ahead += self.run_ms(point, 1)
                decoding += self.upper * other.decode_ms(point.resolution)
        best = None
        for place, point in enumerate(self.points):
            decode = self.upper * job.decode_ms(point.resolution)
            mates = sum(given == point for _, given in self.inside.values()) % self.max_batch
            forward = self.upper * self.run_ms(point, mates + 1)
            queue = self.queue_safety * max(0.0, max(decoding + decode, ahead) - decode)
            reserve = queue * self.reserve * place / (len(self.points) - 1)
            if decode + queue + forward + self.upper * self.overhead_ms() + reserve <= left and (
                best is None or self.accuracy[point] > self.accuracy[best]
            ):
                best = point
        return None if best is None else self.enter(job, best)


@dataclass
class EarlyShares(_Informed):
    """Binds on arrival to the most accurate point that the request's share of time pays for."""

    horizon_ms: float = 75.0
    usable: float = 0.9
    room: float = 0.85

    def share_ms(self, job: Job, waiting: int, ahead_ms: float, now_ms: float) -> float:
        time = max(0.0, job.request.left_ms(now_ms) - ahead_ms) + self.horizon_ms
        expected = max(self.rates) * self.horizon_ms
        return self.usable * time / (waiting + 1 + expected)

    def floor(self, job: Job) -> OperatingPoint:
        return max(self.points, key=lambda p: self.accuracy[p] / self.unit_ms(p, job))

    def decide(self, job: Job, now_ms: float) -> int | None:
        left, floor = job.request.left_ms(now_ms), self.floor(job)
        own = job.decode_ms(floor.resolution) + self.run_ms(floor, 1) + self.overhead_ms()
        if self.ahead_ms(job, now_ms, point=floor) + own > self.room * left and self.inside:
            return None
        ahead = self.ahead_ms(job, now_ms)
        share = self.share_ms(job, len(self.inside), max(0.0, self.run_until_ms - now_ms), now_ms)
        fits = [
            p
            for p in self.points
            if (p == floor or self.unit_ms(p, job) <= share)
            and ahead + job.decode_ms(p.resolution) + self.run_ms(p, 1) + self.overhead_ms()
            <= self.room * left
        ]
        best = max(fits, key=self.accuracy.__getitem__, default=floor if self.inside else None)
        return self.enter(job, best or self.points[0])


@dataclass
class LateShares(EarlyShares):
    """Lets in and decodes for the best; the share decides the point when the engine is free."""

    def decide(self, job: Job, now_ms: float) -> int | None:
        floor = self.floor(job)
        own = job.decode_ms(floor.resolution) + self.run_ms(floor, 1) + self.overhead_ms()
        ahead = self.ahead_ms(job, now_ms, point=floor)
        if ahead + own > self.room * job.request.left_ms(now_ms) and self.inside:
            return None
        return self.enter(job, max(self.points, key=self.accuracy.__getitem__))

    def pick_jobs(self, now_ms: float) -> tuple[list[Job], OperatingPoint]:
        head = self.queue[0]
        share = self.share_ms(head, len(self.inside) - 1, 0.0, now_ms)
        left = head.request.deadline_ms - now_ms - self.overhead_ms()
        floor = self.floor(head)
        fits = [
            p
            for p in self.points
            if (p == floor or self.unit_ms(p, head) <= share) and self.run_ms(p, 1) <= left
        ]
        point = max(fits, key=self.accuracy.__getitem__, default=self.points[0])
        return self.queue[: self.most(self.queue, point, now_ms)], point
