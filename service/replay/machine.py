"""A model of the machine: cores that engine, decoders and event loop share, on a virtual clock.

Work is given in milliseconds of a core. Whatever runs at the same time shares the cores, an
engine's run counting for as many cores as the engine has threads (processor sharing). The event
loop has twice the share of a thread that computes, as niceness gives it.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from san_core.bundle import Accuracy
from san_core.frontier import OperatingPoint, Precision
from san_core.mode import Mode
from service.latency.catalogue import Listing
from service.latency.curves import Curve, Measurements
from service.latency.decode_cost import DecodeCost


@dataclass(frozen=True)
class HostModel:
    """How fast a host is; the defaults are two cores as `benchmarks` measures them."""

    cores: int = 2
    engine_threads: int = 2
    """0: the engine has a device of its own."""
    decode_threads: int = 2
    receive_ms: float = 0.4
    """Event loop per request: reading, parsing, deciding, and the client on the same cores."""
    refuse_ms: float = 0.2
    answer_ms: float = 0.25
    handover_ms: float = 0.25
    """Event loop between two batches."""
    noise: float = 0.12
    """Deviation of the logarithm of every time."""
    spikes: float = 0.005
    """Share of jobs that take three times as long."""
    pace: float = 1.0
    """Everything takes this much longer, unknown to the scheduler."""

    @property
    def mean(self) -> float:
        """How much longer than its median a time is on average."""
        return self.pace * math.exp(self.noise**2 / 2) * (1.0 + 2.0 * self.spikes)


class Job:
    """Some work on some of the cores."""

    __slots__ = ("done", "left", "weight", "width")

    def __init__(self, left: float, width: float, weight: float, done: Callable[[], None]) -> None:
        self.left = left
        self.width = width
        self.weight = weight
        self.done = done


@dataclass
class Machine:
    """Virtual time, events and running jobs."""

    host: HostModel
    seed: int = 1
    now: float = 0.0
    jobs: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._chance = random.Random(self.seed)

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._events, (time, next(self._order), action))

    def work(
        self, ms: float, done: Callable[[], None], width: float = 1.0, weight: float = 1.0
    ) -> None:
        """Start a job that takes so long if it has `width` cores to itself."""
        host = self.host
        noisy = ms * host.pace * self._chance.lognormvariate(0.0, host.noise)
        if self._chance.random() < host.spikes:
            noisy *= 3.0
        self.jobs.append(Job(noisy, width, weight, done))

    def run(self) -> None:
        """Until nothing is left to happen."""
        self.advance(float("inf"))

    def advance(self, limit: float) -> float:
        """Until a time, or until nothing is left; when something happens next."""
        jobs, events = self.jobs, self._events
        while jobs or events:
            wide = sum(job.width for job in jobs)
            # Cores per unit of weight; None: there are enough for everyone.
            unit = None
            if wide > self.host.cores:
                unit = self.host.cores / sum(job.width * job.weight for job in jobs)
            upcoming = events[0][0] if events else float("inf")
            first = min(jobs, key=lambda job: job.left / _speed(job, unit), default=None)
            ends = float("inf")
            if first is not None:
                ends = self.now + first.left / _speed(first, unit)
            until = min(upcoming, ends)
            if until > limit:
                self._pass(limit, unit)
                return until
            self._pass(until, unit)
            if first is not None and ends <= upcoming:
                jobs.remove(first)
                first.done()
            else:
                heapq.heappop(events)[2]()
        if limit != float("inf"):
            self.now = max(self.now, limit)
        return float("inf")

    def _pass(self, until: float, unit: float | None) -> None:
        gone = until - self.now
        for job in self.jobs:
            job.left -= gone * _speed(job, unit)
        self.now = until


def _speed(job: Job, unit: float | None) -> float:
    return 1.0 if unit is None else min(1.0, unit * job.weight)


DECODE = DecodeCost((0.25, 6.0, 1.4, 4.5))
"""Milliseconds of one core, as the default bundle's preprocessing takes on the reference host while
it is busy."""
REFERENCE: dict[Precision, dict[int, tuple[float, float, float, float, float]]] = {
    # precision: {resolution: (ms alone, in a batch of 2, 4, 8, accuracy)}
    "int8": {
        64: (0.37, 0.45, 0.66, 1.22, 0.3365),
        80: (0.47, 0.55, 0.92, 1.67, 0.4605),
        96: (0.55, 0.72, 1.30, 2.10, 0.5435),
        112: (0.66, 0.90, 1.60, 2.49, 0.6105),
        128: (0.76, 1.10, 1.73, 2.87, 0.6415),
        160: (1.15, 1.30, 2.20, 4.00, 0.695),
        192: (1.54, 1.56, 2.70, 5.25, 0.718),
        224: (2.06, 2.10, 3.55, 7.05, 0.743),
    },
    "float": {224: (3.20, 5.20, 10.0, 19.3, 0.745)},
}


def reference() -> tuple[Measurements, list[Listing]]:
    """Two cores with the default bundle, as measured."""
    made, listings = Measurements(decode={"JPEG": DECODE}), []
    for precision, rows in REFERENCE.items():
        for resolution, (*times, accuracy) in rows.items():
            point = OperatingPoint(resolution, Mode.PROXY, precision)
            made.curves[resolution, precision] = Curve((1, 2, 4, 8), tuple(times))
            measured = Accuracy(
                resolution=resolution, mode=Mode.PROXY, precision=precision, top1=accuracy,
                top5=accuracy, dataset="reference", n=2000,
            )  # fmt: skip
            listings.append(Listing(point, accuracy, accuracy, measured))
    listings.sort(key=lambda x: made.curves[x.shape].at(1))
    return made, listings
