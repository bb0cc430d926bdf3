"""Stand-ins for time, threads, engines and networks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import numpy as np

from san_core.frontier import OperatingPoint
from san_core.network.cost import Cost


class FakeClock:
    """Milliseconds that pass only when told to."""

    def __init__(self, now_ms: float = 0.0) -> None:
        self.now_ms = now_ms

    def __call__(self) -> float:
        return self.now_ms

    def advance(self, ms: float) -> None:
        self.now_ms += ms


class InlineWorkers:
    """Runs a job at once on the caller's thread, or when `run_next` says so."""

    def __init__(self, *, held: bool = False) -> None:
        self.held = held
        self.jobs: list[tuple[float, Callable[[], Any], asyncio.Future[Any]]] = []

    def submit(self, function: Callable[[], Any], urgency: float = 0.0) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.jobs.append((urgency, function, future))
        if not self.held:
            self.run_next()
        return future

    def run_next(self) -> None:
        self.jobs.sort(key=lambda job: job[0])
        _, function, future = self.jobs.pop(0)
        if future.cancelled():
            return
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    def close(self) -> None:
        self.jobs.clear()


@dataclass
class FakeNetwork:
    point: OperatingPoint
    memory_bytes: int = 100
    classes: int = 4
    batches: list[int] = field(default_factory=list)
    error: Exception | None = None
    takes_ms: float = 0.0
    clock: FakeClock | None = None

    def run(self, batch: np.ndarray) -> np.ndarray:
        self.batches.append(len(batch))
        if self.clock is not None:
            self.clock.advance(self.takes_ms * len(batch))
        if self.error is not None:
            raise self.error
        # The class with the largest score is the value of the image's first pixel.
        logits = np.zeros((len(batch), self.classes), dtype=np.float32)
        logits[np.arange(len(batch)), batch[:, 0, 0, 0].astype(int) % self.classes] = 5.0
        return logits

    def keep(self) -> None:
        pass

    def finish(self) -> None:
        self.finished = True


class GatedEngine:
    """Runs nothing until its gate opens; counts what it ran."""

    name = "gated"
    device = "cpu"
    precisions = ("float",)

    def __init__(self, classes: int) -> None:
        self.gate = Event()
        self.gate.set()
        self.building = Event()
        self.building.set()
        self.batches: list[int] = []
        self.closed = False
        self._classes = classes

    def describe(self) -> dict[str, str]:
        return {}

    def build(self, point: OperatingPoint) -> GatedNetwork:
        assert self.building.wait(30)
        return GatedNetwork(point, self)

    def cost(self, resolution: int, precision: str) -> Cost:
        return Cost(resolution**2, 1, 4)

    def close(self) -> None:
        self.closed = True


class GatedNetwork(FakeNetwork):
    def __init__(self, point: OperatingPoint, engine: GatedEngine) -> None:
        super().__init__(point, classes=engine._classes)
        self._engine = engine

    def run(self, batch: np.ndarray) -> np.ndarray:
        assert self._engine.gate.wait(30)
        self._engine.batches.append(len(batch))
        return super().run(batch)
