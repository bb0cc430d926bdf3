"""A request's story, told once.

admit -> receive -> choose -> decode -> weights -> batch -> run -> answer -> observe

`Pipeline.classify` reads top to bottom and times each stage. It knows no HTTP: an `Exchange` hands
in the image and takes the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from san_core.errors import SanError
from san_core.preprocessing import ImageHeader
from service.errors import (
    ClientGoneError,
    DrainingError,
    ExpiredError,
    ImpossibleBudgetError,
    NotReadyError,
    OverloadedError,
    Problem,
)
from service.images.decoder import Decoder
from service.latency.model import decode_work
from service.request.answer import Answer, top_k
from service.request.budget import Budget
from service.request.record import Outcome, RequestRecord, Timing
from service.request.terms import Terms
from service.runtime.clock import Clock
from service.scheduling.admission import Admission
from service.scheduling.executor import Source
from service.scheduling.load import Load, Promise
from service.scheduling.policy import Decision
from service.serving.choosing import Chooser, Limits
from service.serving.deployment import Deployment

Pixels = NDArray[np.float32]
"""An image that needs no decoding: [T, T, 3], normalised as the bundle wants it."""


Observe = Callable[[RequestRecord, Answer | None, bytes | Pixels | None], None]
"""Called once per request, whatever became of it."""

_RAN_ITS_COURSE = frozenset({Outcome.ANSWERED, Outcome.LATE, Outcome.EXPIRED})
"""Who ended so tells how good predictions are."""


class Exchange(Protocol):
    """One request as the pipeline sees it, whatever carries it."""

    @property
    def request_id(self) -> str:
        """The id in the answer, the log and the feedback."""

    @property
    def terms(self) -> Terms:
        """What the client asks for."""

    @property
    def started_ms(self) -> float:
        """When the first byte arrived."""

    @property
    def traceparent(self) -> str | None:
        """The caller's span, as W3C Trace Context writes it."""

    @property
    def client(self) -> str:
        """Which client it comes from: what limits and fair shares are counted by."""

    @property
    def expected_bytes(self) -> int:
        """How large the body claims to be; what admission reserves."""

    @property
    def cancelled_by(self) -> Exception | None:
        """Why it is cancelled, if not because the client left: another part was refused."""

    async def receive(self) -> bytes | Pixels:
        """The image: a file's bytes, or pixels that are ready to run."""

    async def answer(self, answer: Answer) -> None:
        """Send the answer; what comes after it is not on the client's time."""


class Pipeline:
    """Serves requests with whatever bundle is deployed."""

    def __init__(
        self,
        admission: Admission,
        load: Load,
        decoder: Decoder,
        clock: Clock,
        limits: Limits,
        observe: Observe,
    ) -> None:
        self.deployment: Deployment | None = None
        """What serves; swapped as a whole, and each request keeps the one it began with."""
        self._admission = admission
        self._load = load
        self._decoder = decoder
        self._clock = clock
        self._chooser = Chooser(admission, load, clock, limits)
        self._patience_ms = limits.patience_ms
        self._observe = observe

    async def classify(self, exchange: Exchange) -> None:
        """Take one request from its first byte to its answer."""
        clock, load, terms = self._clock, self._load, exchange.terms
        record = RequestRecord(
            exchange.request_id,
            terms,
            started_ms=exchange.started_ms,
            traceparent=exchange.traceparent,
        )
        timing = record.timing
        budget = Budget(exchange.started_ms, terms.budget_ms, self._patience_ms)
        image: bytes | Pixels | None = None
        answer: Answer | None = None
        decision: Decision | None = None
        promise: Promise | None = None
        try:
            # admit: before a byte of the body is read
            deployment = self._chooser.admit(self.deployment, budget, terms)
            with (
                self._admission.enter(exchange.expected_bytes, load.drain_ms(clock())),
                deployment,
            ):
                # receive
                image = await exchange.receive()
                record.body_bytes = len(image) if isinstance(image, bytes) else image.nbytes
                timing.receive = budget.spent_ms(clock())

                # choose: from the header alone, so that a JPEG can be decoded at reduced scale
                header = await self._header(image, budget)
                chosen = self._chooser.choose(deployment, header, len(image), budget, terms, record)
                decision, deadline = chosen.decision, chosen.due_ms
                point = decision.option.point
                late = partial(self._chooser.late_is_wanted, terms, chosen)
                promise = load.enter(
                    Promise(
                        deadline,
                        point=point,
                        forward_ms=deployment.forecast.marginal_ms(point, clock()),
                        decode_ms=decision.option.decode_ms,
                    )
                )
                network = deployment.cache.ready(point)
                record.cached = network is not None
                building = None if network is not None else deployment.request(point)

                # decode, while cold weights are being generated
                source: Source = (
                    self._decoder.job(
                        image, deployment.preprocessing, point.resolution, deadline, late=late
                    )
                    if isinstance(image, bytes)
                    else image
                )
                if building is None and len(load) == 1 and deployment.loop.is_idle:
                    # Nobody else is here: the engine's thread decodes too, which saves two changes
                    # of threads.
                    load.decoded_by_engine(promise)
                else:
                    deployment.loop.expect(point)
                    try:
                        source = await self._decoded(source, deadline, timing)
                        load.decoded(promise)

                        # weights: nothing to wait for unless they were cold
                        if building is not None:
                            begun = clock()
                            network = await asyncio.shield(building.network)
                            timing.weights = clock() - begun
                    finally:
                        deployment.loop.unexpect(point)
                assert network is not None

                # batch and run
                learn = building is None or building.own
                ran = await deployment.loop.run(
                    network, source, promise, answer_late=late, learn=learn
                )
                timing.queue += ran.queue_ms
                timing.decode += ran.decode_ms
                timing.forward = ran.forward_ms
                record.batch = ran.batch

                # answer
                predictions = top_k(ran.scores, deployment.manifest.classes, terms.top_k)
                now = clock()
                timing.total = budget.spent_ms(now)
                record.met = budget.met(now)
                record.outcome = Outcome.ANSWERED if record.met else Outcome.LATE
                record.status = 200
                answer = Answer(record, predictions, ran.scores, ran.logits)
                await exchange.answer(answer)
                deployment.model.observe_overhead(timing.total - timing.staged, now)
                if header is not None:
                    at_least = deployment.preprocessing.least_side(point.resolution)
                    work = decode_work(header, record.body_bytes, at_least)
                    deployment.model.observe_decode(work, timing.decode, now)
        except asyncio.CancelledError:
            cause, answer = exchange.cancelled_by, None
            if cause is None:
                record.outcome, record.error = Outcome.DISCONNECTED, "disconnected"
            else:
                _blame(record, cause)
                record.error = "sibling-refused"  # the cause is counted once, where it occurred
            raise
        except Exception as error:
            _blame(record, error)
            raise
        finally:
            # observe
            if promise is not None:
                load.leave(promise)
            if answer is None:
                timing.total = budget.spent_ms(clock())
            if decision is not None and record.cached and record.outcome in _RAN_ITS_COURSE:
                foretold = (record.predicted_ms or 0.0) - decision.option.excess_ms
                deployment.model.observe_excess(timing.total - foretold, clock())
            self._observe(record, answer, image)

    def refused(
        self, request_id: str, started_ms: float, traceparent: str | None, error: Exception
    ) -> None:
        """Observe a request that was turned away before it could become an exchange."""
        record = RequestRecord(request_id, Terms(), started_ms=started_ms, traceparent=traceparent)
        _blame(record, error)
        record.timing.total = self._clock() - started_ms
        self._observe(record, None, None)

    async def _header(self, image: bytes | Pixels, budget: Budget) -> ImageHeader | None:
        if isinstance(image, bytes):
            return await self._decoder.header(image, budget.deadline_ms)
        return None

    async def _decoded(self, source: Source, deadline_ms: float, timing: Timing) -> Pixels:
        """The pixels, by a decoder thread if they are not there yet."""
        if isinstance(source, np.ndarray):
            return source
        asked = self._clock()
        decoded = await self._decoder.decode(source, deadline_ms)
        timing.queue = decoded.started_ms - asked
        timing.decode = decoded.took_ms
        return decoded.pixels


def _blame(record: RequestRecord, error: Exception) -> None:
    """Say in the record how the request ended, and why."""
    problem = Problem(error, record.request_id)
    record.outcome, record.error = _outcome(error, problem.status), problem.slug
    record.status, record.reason = problem.status, str(error)


def _outcome(error: Exception, status: int) -> Outcome:
    match error:
        case OverloadedError():
            return Outcome.OVERLOADED
        case ImpossibleBudgetError():
            return Outcome.IMPOSSIBLE
        case ExpiredError():
            return Outcome.EXPIRED
        case NotReadyError() | DrainingError():
            return Outcome.UNAVAILABLE
        case ClientGoneError():
            return Outcome.DISCONNECTED
        case SanError() if status < 500:
            return Outcome.REJECTED
    return Outcome.FAILED
