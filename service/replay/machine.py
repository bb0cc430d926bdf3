"""A model of the machine: cores that engine, decoders and event loop share, on a virtual clock.

Work is given in milliseconds of a core. Whatever runs at the same time shares the cores evenly, an
engine's run counting for as many cores as the engine has threads (processor sharing).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from san_core.bundle import Accuracy
from san_core.frontier import OperatingPoint, Precision
from san_core.mode import Mode
from service.latency.catalogue import Listing
from service.latency.model import Curve, DecodeCost, Measurements


@dataclass(frozen=True)
class HostModel:
    """How fast a host is; the defaults are two cores as `benchmarks` measures them."""

    cores: int = 2
    engine_threads: int = 2
    """0: the engine has a device of its own."""
    decode_threads: int = 1
    receive_ms: float = 0.35
    """Event loop per request: reading, parsing, deciding, and the client on the same cores."""
    refuse_ms: float = 0.12
    answer_ms: float = 0.2
    handover_ms: float = 0.25
    """Event loop between two batches."""
    noise: float = 0.12
    """Deviation of the logarithm of every time."""
    spikes: float = 0.005
    """Share of jobs that take three times as long."""
    pace: float = 1.0
    """Everything takes this much longer, unknown to the scheduler."""


class Job:
    """Some work on some of the cores."""

    __slots__ = ("done", "left", "width")

    def __init__(self, left: float, width: float, done: Callable[[], None]) -> None:
        self.left = left
        self.width = width
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

    def work(self, ms: float, done: Callable[[], None], width: float = 1.0) -> None:
        """Start a job that takes so long if it has `width` cores to itself."""
        host = self.host
        noisy = ms * host.pace * self._chance.lognormvariate(0.0, host.noise)
        if self._chance.random() < host.spikes:
            noisy *= 3.0
        self.jobs.append(Job(noisy, width, done))

    def run(self) -> None:
        """Until nothing is left to happen."""
        self.advance(float("inf"))

    def advance(self, limit: float) -> float:
        """Until a time, or until nothing is left; when something happens next."""
        jobs, events = self.jobs, self._events
        while jobs or events:
            wide = sum(job.width for job in jobs)
            speed = min(1.0, self.host.cores / wide) if wide else 1.0
            upcoming = events[0][0] if events else float("inf")
            first = min(jobs, key=lambda job: job.left, default=None)
            ends = self.now + first.left / speed if first is not None else float("inf")
            until = min(upcoming, ends)
            if until > limit:
                self._pass(limit, speed)
                return until
            self._pass(until, speed)
            if first is not None and ends <= upcoming:
                jobs.remove(first)
                first.done()
            else:
                heapq.heappop(events)[2]()
        if limit != float("inf"):
            self.now = max(self.now, limit)
        return float("inf")

    def _pass(self, until: float, speed: float) -> None:
        gone = (until - self.now) * speed
        for job in self.jobs:
            job.left -= gone
        self.now = until


DECODE = DecodeCost((0.25, 6.0, 1.0, 3.0))
"""Milliseconds of one core, as the default bundle's preprocessing takes on the reference host."""
REFERENCE: dict[Precision, dict[int, tuple[float, float, float, float, float]]] = {
    # precision: {resolution: (ms alone, in a batch of 2, 4, 8, accuracy)}
    "int8": {
        64: (0.55, 0.70, 1.00, 1.60, 0.247),
        80: (0.62, 0.85, 1.25, 2.10, 0.395),
        96: (0.70, 1.00, 1.60, 2.80, 0.5055),
        112: (0.82, 1.20, 2.05, 3.70, 0.586),
        128: (0.95, 1.50, 2.60, 4.80, 0.628),
        144: (1.15, 1.85, 3.30, 6.10, 0.669),
        160: (1.35, 2.25, 4.10, 7.60, 0.690),
        176: (1.55, 2.70, 4.95, 9.30, 0.7155),
        192: (1.75, 3.10, 5.80, 11.0, 0.718),
        208: (2.00, 3.65, 6.90, 13.2, 0.737),
        224: (2.25, 4.20, 8.00, 15.5, 0.743),
    },
    "float": {224: (4.5, 8.8, 17.5, 36.0, 0.745)},
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
