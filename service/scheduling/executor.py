"""Carries out what `batching` plans: one engine thread, one batch at a time.

Callbacks on the event loop and no task of its own: when a batch ends its futures are settled and
the next plan is made at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from san_core.frontier import OperatingPoint
from service.engines.base import RunnableNetwork
from service.errors import ExpiredError
from service.images.decoder import Decoded
from service.latency.model import LatencyModel
from service.runtime.clock import Clock
from service.runtime.thread_pool import Workers
from service.scheduling.batching import BatchQueue, Entry, Plan
from service.scheduling.load import Load, Promise

Source = NDArray[np.float32] | Callable[[], Decoded]
"""An image's pixels, or what decodes it: on the engine's thread, saving a change of threads."""


@dataclass(slots=True)
class Ran:
    """What became of one request's run."""

    scores: NDArray[np.float32]
    """Softmax over the classes."""
    logits: NDArray[np.float32]
    queue_ms: float
    decode_ms: float
    """0 if its pixels were there."""
    forward_ms: float
    batch: int


@dataclass(slots=True)
class _Executed:
    logits: NDArray[np.float32]
    scores: NDArray[np.float32]
    begun_ms: float
    decode_ms: float
    forward_ms: float


@dataclass(slots=True)
class _Cargo:
    network: RunnableNetwork
    source: Source
    promise: Promise
    future: asyncio.Future[Ran]
    learn: bool
    """Whether this network's times are those the latency model predicts."""


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Over the last axis; safe for any finite logits."""
    exponent = np.exp(logits - logits.max(axis=-1, keepdims=True))
    scores: NDArray[np.float32] = exponent / exponent.sum(axis=-1, keepdims=True)
    return scores


def _pixels(source: Source) -> NDArray[np.float32]:
    return source if isinstance(source, np.ndarray) else source().pixels


def _best_cargo(batch: list[Entry]) -> _Cargo:
    """The own engine's network if anyone in the batch holds it; a stand-in computes the same."""
    cargos: list[_Cargo] = [entry.cargo for entry in batch]
    return next((cargo for cargo in cargos if cargo.learn), cargos[0])


class EngineLoop:
    """Takes decoded requests, forms batches, runs them."""

    def __init__(
        self,
        workers: Workers,
        model: LatencyModel,
        load: Load,
        clock: Clock,
        *,
        max_batch: int,
        window_ms: float,
        quantile: float,
        on_batch: Callable[[OperatingPoint, int, float], None] = lambda *_: None,
    ) -> None:
        self._workers = workers
        self._model = model
        self._load = load
        self._clock = clock
        self._quantile = quantile
        self._on_batch = on_batch
        self._queue = BatchQueue(max_batch, window_ms)
        self._coming: dict[OperatingPoint, int] = {}
        self._busy = False
        self._idle_since_ms = clock()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def depth(self) -> int:
        """How many decoded requests wait."""
        return len(self._queue)

    @property
    def is_idle(self) -> bool:
        """Whether the engine has nothing to do."""
        return not self._busy and not len(self._queue)

    def expect(self, point: OperatingPoint) -> None:
        """A request for this point is being decoded: a batch may be worth holding open for it."""
        self._coming[point] = self._coming.get(point, 0) + 1

    def unexpect(self, point: OperatingPoint) -> None:
        """It has arrived, or never will."""
        left = self._coming.get(point, 0) - 1
        if left > 0:
            self._coming[point] = left
        else:
            self._coming.pop(point, None)

    async def run(
        self,
        network: RunnableNetwork,
        source: Source,
        promise: Promise,
        *,
        answer_late: Callable[[], bool] = lambda: True,
        learn: bool = True,
    ) -> Ran:
        """Wait for a batch and run in it.

        Cancelling is safe at any time: before the batch starts it costs nothing, after that the
        others in it are unharmed.
        """
        future: asyncio.Future[Ran] = asyncio.get_running_loop().create_future()
        now = self._clock()
        entry = Entry(
            promise.point,
            # The answer has still to be written after the run.
            promise.deadline_ms - self._model.overhead_ms(self._quantile, now),
            now,
            answer_late,
            _Cargo(network, source, promise, future, learn),
        )
        self._queue.add(entry)
        self._step()
        try:
            return await future
        except asyncio.CancelledError:
            entry.abandoned = True
            raise

    def _step(self) -> None:
        if self._busy:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock()
        plan = self._queue.plan(
            now, self._idle_since_ms, self._run_time, lambda point: self._coming.get(point, 0)
        )
        self._refuse(plan)
        if plan.run:
            self._start(plan.run, now)
        elif plan.wake_ms is not None:
            delay = max(0.0, (plan.wake_ms - now) / 1000)
            self._timer = asyncio.get_running_loop().call_later(delay, self._step)

    def _run_time(self, point: OperatingPoint, batch: int) -> float:
        shape = (point.resolution, point.precision)
        return self._model.forward_ms(shape, batch, self._quantile, self._clock())

    def _refuse(self, plan: Plan) -> None:
        for entry in plan.expired:
            future = entry.cargo.future
            if not future.done():
                future.set_exception(
                    ExpiredError(
                        "The deadline would have passed before the answer: the service is "
                        "busier than predicted.",
                        self._load.drain_ms(self._clock()),
                    )
                )

    def _start(self, batch: list[Entry], now_ms: float) -> None:
        self._busy = True
        self._load.started([entry.cargo.promise for entry in batch], now_ms)
        job = self._workers.submit(lambda: self._execute(batch))
        job.add_done_callback(lambda done: self._finish(batch, done))

    def _execute(self, batch: list[Entry]) -> _Executed:
        """On the engine thread."""
        begun = self._clock()
        network: RunnableNetwork = _best_cargo(batch).network
        pixels = [_pixels(entry.cargo.source) for entry in batch]
        decoded = self._clock()
        images = pixels[0][np.newaxis] if len(batch) == 1 else np.stack(pixels)
        logits = network.run(images)
        scores = softmax(logits)
        return _Executed(logits, scores, begun, decoded - begun, self._clock() - decoded)

    def _finish(
        self,
        batch: list[Entry],
        done: asyncio.Future[_Executed],
    ) -> None:
        self._busy = False
        now = self._idle_since_ms = self._clock()
        error = done.exception()
        for row, entry in enumerate(batch):
            future: asyncio.Future[Ran] = entry.cargo.future
            # Its work is done even if its answer is still to be written.
            self._load.leave(entry.cargo.promise)
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                executed = done.result()
                future.set_result(
                    Ran(
                        executed.scores[row],
                        executed.logits[row],
                        executed.begun_ms - entry.joined_ms,
                        0.0 if isinstance(entry.cargo.source, np.ndarray) else executed.decode_ms,
                        executed.forward_ms,
                        len(batch),
                    )
                )
        if error is None:
            # After the answers, which wait for nothing any more.
            learn = partial(self._learn, batch, done.result().forward_ms, now)
            asyncio.get_running_loop().call_soon(learn)
        self._step()

    def _learn(self, batch: list[Entry], forward_ms: float, now_ms: float) -> None:
        point, size = batch[0].point, len(batch)
        if _best_cargo(batch).learn:
            shape = (point.resolution, point.precision)
            self._model.observe_forward(shape, size, forward_ms, now_ms)
        self._on_batch(point, size, forward_ms)
