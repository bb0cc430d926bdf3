"""One trace, one policy, one machine: what became of every request."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Protocol

from san_core.frontier import OperatingPoint
from san_core.preprocessing import ImageHeader, Preprocessing
from service.latency.catalogue import Listing
from service.latency.curves import Measurements
from service.latency.decode_cost import DecodeWork, decode_work
from service.latency.quantiles import quantile
from service.replay.machine import DECODE, HostModel, Machine
from service.replay.traces import Arrival
from service.request.request import Request, State
from service.request.terms import Terms

PREPROCESSING = Preprocessing()
_LOOP_WEIGHT = 2.0
"""The event loop's share of a core over that of a thread that computes."""


@dataclass(slots=True)
class Job:
    """One arrival on its way through the machine."""

    request: Request
    arrival: Arrival
    header: ImageHeader
    decoded: bool = False

    def work(self, resolution: int) -> DecodeWork:
        """What decoding it for a resolution involves."""
        at_least = PREPROCESSING.least_side(resolution)
        return decode_work(self.header, self.arrival.bytes, at_least)

    def decode_ms(self, resolution: int) -> float:
        """Core time of that."""
        return self.arrival.images * DECODE.at(self.work(resolution))


class Policy(Protocol):
    """What decides in a simulation: the scheduler of the service, or a rival."""

    drop: Callable[[Job], None]
    """Called with a job that is given up after it was let in."""
    wake: Callable[[float], None]
    """Called with a time at which to look at the queue again."""

    def admit(self, job: Job, now_ms: float) -> bool:
        """Whether a request is let in before its body is read."""

    def decide(self, job: Job, now_ms: float) -> int | None:
        """The resolution to decode for, or None to refuse."""

    def decoded(self, job: Job, took_ms: float, now_ms: float) -> None:
        """It waits for the engine now."""

    def batch(self, now_ms: float) -> tuple[list[Job], OperatingPoint] | None:
        """What the free engine runs; may drop jobs from its queue for good."""

    def finished(self, jobs: list[Job], took_ms: float, now_ms: float) -> None:
        """The run ended."""

    def answered(self, job: Job, now_ms: float) -> None:
        """The answer was sent."""


@dataclass
class Result:
    """What a policy made of a trace."""

    offered: int = 0
    refused: int = 0
    late: int = 0
    in_time: int = 0
    accuracy: float = 0.0
    """Sum over answers in time."""
    latencies: list[float] = field(default_factory=list)
    batches: Counter[int] = field(default_factory=Counter)
    used: Counter[int] = field(default_factory=Counter)
    clients: dict[str, Result] = field(default_factory=dict)

    def add(self, other: Result) -> None:
        """Take in what became of other requests."""
        self.offered += other.offered
        self.refused += other.refused
        self.late += other.late
        self.in_time += other.in_time
        self.accuracy += other.accuracy
        self.latencies += other.latencies
        self.batches += other.batches
        self.used += other.used

    @property
    def per_offered(self) -> float:
        """Expected accuracy in time per offered request."""
        return self.accuracy / max(1, self.offered)

    @property
    def kept(self) -> float:
        """Share of the admitted that were in time."""
        return self.in_time / max(1, self.offered - self.refused)

    @property
    def mean_batch(self) -> float:
        """Requests per run."""
        return sum(n * k for n, k in self.batches.items()) / max(1, sum(self.batches.values()))

    def percentile(self, q: float) -> float:
        """Of the times of all answers."""
        return quantile(sorted(self.latencies), q) if self.latencies else 0.0


class Simulation:
    """The machine's stations in the order in which the service has them."""

    def __init__(
        self,
        policy: Policy,
        host: HostModel,
        measured: Measurements,
        listings: list[Listing],
        seed: int = 1,
    ) -> None:
        self.machine = Machine(host, seed)
        self.result = Result()
        self._policy = policy
        self._curves = measured.curves
        self._accuracy = {listing.point: listing.rank for listing in listings}
        self._loop: list[tuple[float, object]] = []
        self._loop_busy = False
        self._to_decode: list[tuple[float, int, Job, int]] = []
        self._decoding = 0
        self._engine_busy = False
        self._inside = 0
        self._order = count()

    def run(self, trace: list[Arrival]) -> Result:
        """Play a trace."""
        self._policy.drop = self.dropped
        self._policy.wake = lambda at_ms: self.machine.at(at_ms, self._engine_next)
        for arrival in trace:
            self.arrive(arrival, arrival.at_ms)
        self.machine.run()
        return self.result

    def arrive(self, arrival: Arrival, at_ms: float) -> None:
        """A request reaches the machine at a time; its budget counts from `arrival.at_ms`."""
        self.machine.at(at_ms, partial(self._arrive, arrival))

    def _on_loop(self, ms: float, then: object) -> None:
        """One thing at a time on the event loop."""
        self._loop.append((ms, then))
        self._loop_next()

    def _loop_next(self) -> None:
        if self._loop_busy or not self._loop:
            return
        self._loop_busy = True
        ms, then = self._loop.pop(0)

        def done() -> None:
            self._loop_busy = False
            then()  # type: ignore[operator]
            self._loop_next()

        self.machine.work(ms, done, weight=_LOOP_WEIGHT)

    def _arrive(self, arrival: Arrival) -> None:
        self.result.offered += 1
        self._client(arrival).offered += 1
        request = Request(
            "",
            Terms(budget_ms=arrival.budget_ms),
            arrival.at_ms,
            client=arrival.client,
            images=arrival.images,
        )
        job = Job(request, arrival, ImageHeader("JPEG", arrival.width, arrival.height))
        host = self.machine.host

        def admit() -> None:
            if self._policy.admit(job, self.machine.now):
                self._on_loop(host.receive_ms - host.refuse_ms, partial(self._decide, job))
            else:
                self._refuse(job)

        self._on_loop(host.refuse_ms, admit)

    def _client(self, arrival: Arrival) -> Result:
        return self.result.clients.setdefault(arrival.client, Result())

    def _refuse(self, job: Job) -> None:
        self.result.refused += 1
        self._client(job.arrival).refused += 1

    def _decide(self, job: Job) -> None:
        resolution = self._policy.decide(job, self.machine.now)
        if resolution is None:
            self._refuse(job)
            return
        self._inside += 1
        if self._inside == 1 and not self._engine_busy:
            # Nobody else is here: the engine's thread decodes too.
            self._engine_busy = True
            begun = self.machine.now

            def decoded() -> None:
                job.request.timing.decode = self.machine.now - begun
                self._policy.decoded(job, self.machine.now - begun, self.machine.now)
                self._engine_busy = False
                self._engine_next()

            self.machine.work(job.decode_ms(resolution), decoded)
            return
        entry = (job.request.decode_urgency, next(self._order), job, resolution)
        heapq.heappush(self._to_decode, entry)
        self._decode_next()

    def _decode_next(self) -> None:
        if self._decoding >= self.machine.host.decode_threads or not self._to_decode:
            return
        self._decoding += 1
        _, _, job, resolution = heapq.heappop(self._to_decode)
        begun = self.machine.now

        def decoded() -> None:
            self._decoding -= 1
            job.request.timing.decode = self.machine.now - begun
            job.request.timing.queue = begun - job.request.decided_ms
            job.request.waiting_ms = self.machine.now
            self._policy.decoded(job, self.machine.now - begun, self.machine.now)
            self._engine_next()
            self._decode_next()

        self.machine.work(job.decode_ms(resolution), decoded)

    def _engine_next(self) -> None:
        if self._engine_busy:
            return
        chosen = self._policy.batch(self.machine.now)
        if chosen is None:
            return
        jobs, point = chosen
        self._engine_busy = True
        images = sum(job.arrival.images for job in jobs)
        base = self._curves[point.resolution, point.precision].at(images)
        # An image of a batch has a thread of its own; one alone has only one.
        threads = min(self.machine.host.engine_threads, images)
        begun = self.machine.now
        for job in jobs:
            timing, request = job.request.timing, job.request
            timing.queue += begun - request.waiting_ms
        self.result.batches[images] += 1

        def ran() -> None:
            took = self.machine.now - begun
            for job in jobs:
                job.request.timing.forward = took
            self._on_loop(self.machine.host.handover_ms, partial(self._settle, jobs, point, took))

        self.machine.work(base, ran, width=float(threads))

    def _settle(self, jobs: list[Job], point: OperatingPoint, took_ms: float) -> None:
        self._engine_busy = False
        self._inside -= len(jobs)
        self._policy.finished(jobs, took_ms, self.machine.now)
        for job in jobs:
            self._on_loop(self.machine.host.answer_ms, partial(self._answer, job, point))
        self._engine_next()

    def _answer(self, job: Job, point: OperatingPoint) -> None:
        now = self.machine.now
        timing = job.request.timing
        timing.receive = job.request.decided_ms - job.arrival.at_ms
        timing.total = now - job.arrival.at_ms
        self._policy.answered(job, now)
        in_time = job.request.in_time(now)
        for result in (self.result, self._client(job.arrival)):
            result.latencies.append(now - job.arrival.at_ms)
            result.in_time += in_time
            result.late += not in_time
            result.accuracy += in_time * self._accuracy[point]
            result.used[point.resolution] += 1

    def dropped(self, job: Job) -> None:
        """A policy gave a job up after it was let in."""
        self._inside -= 1
        job.request.state = State.DONE
        self.result.late += 1
        self._client(job.arrival).late += 1
