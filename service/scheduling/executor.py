"""Carries out what the scheduler plans: on the engine's threads, as many batches as it takes.

That is one on a CPU. A GPU takes two: the second is copied while the first computes. Callbacks on
the event loop and no task of its own: when a batch ends its futures are settled and the next plan
is made at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from san_core.frontier import OperatingPoint
from service.engines.base import Images, RunnableNetwork
from service.errors import ExpiredError
from service.images.decoder import Decoded, DecodeJob
from service.request.request import Request
from service.runtime.clock import Clock
from service.runtime.thread_pool import Workers
from service.scheduling.dispatching import Plan
from service.scheduling.scheduler import Scheduler

Source = Images | Decoded | DecodeJob
"""An image [T, T, 3], decoded pixels, or what decodes it on the engine's thread."""


@dataclass(slots=True)
class Ran:
    """What became of one request's run."""

    scores: NDArray[np.float32]
    """[images, classes]: softmax."""
    logits: NDArray[np.float32]
    decode_ms: float
    """On the engine's thread; 0 if its pixels were there."""


@dataclass(slots=True)
class _Job:
    request: Request
    sources: Sequence[Source]
    network: RunnableNetwork
    """That of the point it was first given: it may have been evicted since."""
    future: asyncio.Future[Ran]


@dataclass(slots=True)
class _Executed:
    logits: NDArray[np.float32]
    scores: NDArray[np.float32]
    begun_ms: float
    decoded_ms: float
    ended_ms: float


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Over the last axis; safe for any finite logits."""
    exponent = np.exp(logits - logits.max(axis=-1, keepdims=True))
    scores: NDArray[np.float32] = exponent / exponent.sum(axis=-1, keepdims=True)
    return scores


def _images(sources: Sequence[Source], resolution: int) -> Images:
    """Bring every image to the point's resolution: [n, T, T, 3]."""
    found: list[Images] = []
    for source in sources:
        decoded = source() if isinstance(source, DecodeJob) else source
        found.append(decoded.at(resolution) if isinstance(decoded, Decoded) else decoded)
    return found[0][np.newaxis] if len(found) == 1 else np.stack(found)


class Executor:
    """Takes requests that are ready to run, runs what the scheduler says."""

    def __init__(
        self,
        workers: Workers,
        scheduler: Scheduler,
        clock: Clock,
        *,
        in_flight: int = 1,
        network_for: Callable[[OperatingPoint], RunnableNetwork | None] = lambda _: None,
        wants_late: Callable[[Request, float], bool] = lambda *_: True,
        on_batch: Callable[[OperatingPoint, int, float], None] = lambda *_: None,
    ) -> None:
        self._workers = workers
        self._scheduler = scheduler
        self._clock = clock
        self._network_for = network_for
        self._wants_late = wants_late
        self._on_batch = on_batch
        self._jobs: dict[Request, _Job] = {}
        self._in_flight = in_flight
        self._batches = 0
        """How many are in the engine."""
        self._ended_ms = 0.0
        """When the engine was last done with one."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def depth(self) -> int:
        """How many requests wait."""
        return len(self._scheduler)

    @property
    def is_idle(self) -> bool:
        """Whether the engine has nothing to do."""
        return not self._batches and not self._jobs

    async def run(
        self,
        request: Request,
        sources: Sequence[Source],
        network: RunnableNetwork,
    ) -> Ran:
        """Wait for the engine and run.

        Cancelling is safe at any time: before the batch starts it costs nothing, after that the
        others in it are unharmed.
        """
        future: asyncio.Future[Ran] = asyncio.get_running_loop().create_future()
        self._jobs[request] = _Job(request, sources, network, future)
        self._scheduler.wait(request, self._clock())
        self._step()
        try:
            return await future
        finally:
            self._jobs.pop(request, None)
            if future.cancelled():
                self._scheduler.leave(request, self._clock())

    def _step(self) -> None:
        if self._batches == self._in_flight or not len(self._scheduler):
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock()
        plan = self._scheduler.next(now, lambda request: self._wants_late(request, now))
        for request in plan.expired:
            self._expire(request, now)
        if plan.wake_ms is not None:
            delay_s = max(0.0, plan.wake_ms - now) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._step)
        elif plan.run:
            jobs = [self._jobs[request] for request in plan.run]
            network = self._network(jobs)
            self._batches += 1
            self._scheduler.started(plan, now)
            job = self._workers.submit(lambda: self._execute(jobs, network))
            job.add_done_callback(lambda done: self._finish(plan, jobs, done))
            self._step()

    def _expire(self, request: Request, now_ms: float) -> None:
        future = self._jobs[request].future
        if not future.done():
            future.set_exception(
                ExpiredError(
                    "The deadline would have passed before the answer: the service is busier "
                    "than predicted.",
                    self._scheduler.schedule.drain_ms(now_ms),
                )
            )

    def _network(self, jobs: list[_Job]) -> RunnableNetwork:
        """The cached one of the point that was chosen, else one that a request holds."""
        point = jobs[0].request.point
        assert point is not None
        network = self._network_for(point)
        if network is None:
            held = sorted((job.network for job in jobs), key=lambda n: n.point)
            network = next((n for n in held if n.point == point), held[0])
            for job in jobs:  # the point was evicted since it was chosen
                job.request.point = network.point
        return network

    def _execute(self, jobs: list[_Job], network: RunnableNetwork) -> _Executed:
        """On the engine thread."""
        begun = self._clock()
        sources = [source for job in jobs for source in job.sources]
        if isinstance(only := sources[0], DecodeJob) and len(sources) == 1:
            sources = [only()]
        decoded = self._clock()
        images = _images(sources, network.point.resolution)
        most = self._scheduler.max_batch
        logits = (
            network.run(images)
            if len(images) <= most
            else np.concatenate(
                [network.run(images[i : i + most]) for i in range(0, len(images), most)]
            )
        )
        return _Executed(logits, softmax(logits), begun, decoded, self._clock())

    def _finish(self, plan: Plan, jobs: list[_Job], done: asyncio.Future[_Executed]) -> None:
        self._batches -= 1
        now, error = self._clock(), done.exception()
        self._scheduler.finished(plan, now)
        if error is not None:
            for job in jobs:
                if not job.future.done():
                    job.future.set_exception(error)
            self._scheduler.learn(plan, None)
            self._step()
            return
        executed, row = done.result(), 0
        images = len(executed.logits)
        # Its own time begins when the one before it is done.
        computed_ms = max(executed.decoded_ms, self._ended_ms)
        self._ended_ms = executed.ended_ms
        for job in jobs:
            request, timing = job.request, job.request.timing
            rows = slice(row, row + request.images)
            row += request.images
            decode = (
                executed.decoded_ms - executed.begun_ms
                if isinstance(job.sources[0], DecodeJob)
                else 0.0
            )
            waited_ms = computed_ms - executed.decoded_ms
            timing.queue += executed.begun_ms - request.waiting_ms + waited_ms
            timing.forward = executed.ended_ms - computed_ms
            request.batch = images
            if not job.future.done():
                job.future.set_result(Ran(executed.scores[rows], executed.logits[rows], decode))
        self._step()
        # Behind the answers, which go out now.
        asyncio.get_running_loop().call_soon(self._learn, plan, computed_ms, executed.ended_ms)

    def _learn(self, plan: Plan, begun_ms: float, ended_ms: float) -> None:
        self._scheduler.learn(plan, (begun_ms, ended_ms))
        first = plan.run[0]
        assert first.point is not None
        self._on_batch(first.point, first.batch, ended_ms - begun_ms)
