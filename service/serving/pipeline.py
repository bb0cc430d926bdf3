"""A request's story, told once.

admit -> receive -> decide -> decode -> weights -> wait and run -> answer -> observe

`Pipeline.classify` reads top to bottom and times each stage. It knows no HTTP: an `Exchange` hands
in the image and takes the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from san_core.errors import SanError
from service.engines.base import Images
from service.errors import (
    ClientGoneError,
    DrainingError,
    ExpiredError,
    ImpossibleBudgetError,
    NotReadyError,
    OverloadedError,
    status_and_slug,
)
from service.images.decoder import DecodeJob, Decoder, are_quick
from service.images.header import Header
from service.latency.decode_cost import decode_work
from service.request.answer import Answer, Result, top_k
from service.request.request import Outcome, Request, State
from service.request.terms import Terms
from service.runtime.clock import Clock
from service.scheduling.admission import Admission
from service.scheduling.executor import Source
from service.scheduling.schedule import Schedule
from service.serving.answers import AnswerCache, Known
from service.serving.bundles.deployment import Deployment
from service.serving.choosing import Image, Limits, admit, decide

Pixels = Images
"""An image that needs no decoding: [T, T, 3]."""


Received = bytes | Pixels | list[bytes] | list[Pixels]
"""The image of a request, or its images, which are planned and run as one."""

Observe = Callable[[Request, Answer | None, Received | None], None]
"""Called once per request, whatever became of it."""

Route = Callable[[str], Deployment | None]
"""Which deployment serves a client; each request keeps the one it began with."""

_RAN_ITS_COURSE = frozenset({Outcome.ANSWERED, Outcome.LATE, Outcome.EXPIRED})
"""Requests that ended so tell how good predictions are."""


class Exchange(Protocol):
    """One request as the pipeline sees it, whatever carries it."""

    request_id: str
    """The id in the answer, the log and the feedback."""
    terms: Terms
    """What the client asks for."""
    started_ms: float
    """When the first byte arrived."""
    traceparent: str | None
    """The caller's span, as W3C Trace Context writes it."""
    client: str
    """Which client it comes from: what limits and fair shares are counted by."""
    expected_bytes: int
    """How large the body claims to be; what admission reserves."""

    async def receive(self) -> Received:
        """The images: files' bytes, or pixels that are ready to run."""

    async def answer(self, answer: Answer) -> None:
        """Send the answer; what comes after it is not on the client's time."""


@dataclass(slots=True)
class Given:
    """An exchange whose images are here already; it keeps the answer."""

    request_id: str
    terms: Terms
    started_ms: float
    client: str
    images: Received
    traceparent: str | None = None
    answered: Answer | None = None

    expected_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        images = self.images if isinstance(self.images, list) else [self.images]
        self.expected_bytes = sum(map(_size, images))

    async def receive(self) -> Received:
        """The images."""
        return self.images

    async def answer(self, answer: Answer) -> None:
        """Keep the answer, for the caller."""
        self.answered = answer


class Pipeline:
    """Serves requests with whatever bundle is deployed for them."""

    def __init__(
        self,
        admission: Admission,
        schedule: Schedule,
        decoder: Decoder,
        clock: Clock,
        limits: Limits,
        observe: Observe,
        route: Route,
        answers: AnswerCache | None = None,
    ) -> None:
        self._route = route
        self._answers = answers
        self._admission = admission
        self._schedule = schedule
        self._decoder = decoder
        self._clock = clock
        self._limits = limits
        self._observe = observe

    async def classify(self, exchange: Exchange) -> None:
        """Take one request from its first byte to its answer."""
        clock, limits = self._clock, self._limits
        request = Request(
            exchange.request_id,
            exchange.terms,
            exchange.started_ms,
            limits.patience_ms,
            exchange.traceparent,
            exchange.client,
        )
        timing = request.timing
        received: Received | None = None
        answer: Answer | None = None
        try:
            # admit: before a byte of the body is read
            serving = self._route(exchange.client)
            asked_ms = clock()
            deployment = admit(request, serving, self._admission, limits, asked_ms)
            scheduler = deployment.scheduler
            with self._admission.enter(exchange.expected_bytes), deployment:
                # receive
                received = await exchange.receive()
                images = received if isinstance(received, list) else [received]
                request.images = len(images)
                request.body_bytes = sum(map(_size, images))
                now = clock()
                timing.receive, request.upload_ms = request.spent_ms(now), now - asked_ms

                # decide: from the headers alone, so that a JPEG can be decoded at reduced scale
                headers = [await self._header(x, request) for x in images]
                self._decoder.limits.check_all(headers)
                known = [Image(h, _size(x)) for h, x in zip(headers, images, strict=True)]
                request.decoded_apart = not all(h is None or h.quick for h in headers)
                if headers[0] is not None:
                    request.size = headers[0].width, headers[0].height
                seen = self._seen(received, headers[0], deployment, request)
                if seen is not None:
                    # the very same picture was answered before: nothing to run
                    answer = _again(request, seen, deployment, clock())
                    await exchange.answer(answer)
                    return
                decide(request, deployment, known, clock())
                point, side = request.point, request.side
                assert point is not None
                network = deployment.cache.ready(point)
                request.cached = network is not None
                building = (
                    None if network is not None else deployment.request(point, exchange.client)
                )

                # decode, while cold weights are being generated
                sources = [
                    self._job(x, header, deployment, request)
                    for x, header in zip(images, headers, strict=True)
                ]
                request.direct = (
                    building is None
                    and request.alone
                    and are_quick(sources)
                    and deployment.executor.is_idle
                )
                if not request.direct:
                    sources = await self._decoded(sources, request)
                    if building is not None:
                        begun = clock()
                        network = await asyncio.shield(building)
                        timing.weights = clock() - begun
                # else no other request is here: the engine's thread decodes too, which saves two
                # changes of threads

                # wait, and run in a batch at the point that is chosen then
                assert network is not None
                ran = await deployment.executor.run(request, sources, network)
                timing.decode += ran.decode_ms

                # answer
                classes, k = deployment.manifest.classes, request.terms.top_k
                results = [
                    Result(top_k(scores, classes, k), scores, logits)
                    for scores, logits in zip(ran.scores, ran.logits, strict=True)
                ]
                now = clock()
                timing.total = request.spent_ms(now)
                request.met = request.in_time(now)
                request.outcome = Outcome.ANSWERED if request.met else Outcome.LATE
                request.status = 200
                answer = Answer(request, results)
                await exchange.answer(answer)
                self._remember(received, deployment, answer)
                if len(headers) == 1 and headers[0] is not None:
                    at_least = deployment.least_side(side)
                    work = decode_work(headers[0], known[0].bytes, at_least)
                    deployment.model.observe_decode(work, timing.decode, alone=request.alone)
        except asyncio.CancelledError:
            answer = None
            request.outcome, request.error = Outcome.DISCONNECTED, "disconnected"
            raise
        except Exception as error:
            _blame(request, error)
            raise
        finally:
            # observe
            now = clock()
            if answer is None:
                timing.total = request.spent_ms(now)
            if request.state is not State.RECEIVING:
                scheduler.leave(request, now)
                if request.cached and request.outcome in _RAN_ITS_COURSE:
                    scheduler.answered(request, request.started_ms + timing.total)
            self._observe(request, answer, received)

    def look(self, beginning: bytes) -> None:
        """Raise if an image that begins so is not taken, whatever follows."""
        self._decoder.look(beginning)

    def refused(
        self, request_id: str, started_ms: float, traceparent: str | None, error: Exception
    ) -> None:
        """Observe a request that was turned away before it could become an exchange."""
        record = Request(request_id, Terms(), started_ms=started_ms, traceparent=traceparent)
        _blame(record, error)
        record.timing.total = self._clock() - started_ms
        self._observe(record, None, None)

    def _seen(
        self,
        image: Received,
        header: Header | None,
        deployment: Deployment,
        request: Request,
    ) -> Known | None:
        """The answer to this very picture, if running it again could not give a better one."""
        terms = request.terms
        if self._answers is None or not isinstance(image, bytes):
            return None
        if (terms.resolution, terms.mode, terms.precision) != (None, None, None):
            return None
        size = len(image)

        def at_least() -> float:
            # An idle host is the most that a run could buy.
            idle = deployment.idle_host.look(header, size, terms.budget_ms, terms.min_accuracy)
            return max(idle.accuracy or 0.0, terms.min_accuracy or 0.0)

        return self._answers.find(image, deployment.sha256, at_least)

    def _remember(self, image: Received, deployment: Deployment, answer: Answer) -> None:
        point = answer.record.point
        if self._answers is not None and isinstance(image, bytes) and point is not None:
            accuracy, only = answer.record.expected_accuracy or 0.0, answer.results[0]
            self._answers.put(
                image, Known(deployment.sha256, point, accuracy, only.scores, only.logits)
            )

    async def _header(self, image: bytes | Pixels, request: Request) -> Header | None:
        if isinstance(image, bytes):
            return await self._decoder.header(image, request.deadline_ms)
        return None

    def _job(
        self,
        image: bytes | Pixels,
        header: Header | None,
        deployment: Deployment,
        request: Request,
    ) -> Source:
        """What decodes an image for the point its request may hope for."""
        if not isinstance(image, bytes):
            return image
        late = partial(self._wants_late, request)
        how = deployment.preprocessing
        return self._decoder.job(
            image,
            how,
            request.side,
            request.due_ms,
            header=header,
            client=request.client,
            late=late,
        )

    def _wants_late(self, request: Request) -> bool:
        return self._schedule.wants_late(request, self._clock())

    async def _decoded(self, sources: list[Source], request: Request) -> list[Source]:
        """The pixels of all images, by decoder threads if they are not there yet."""
        asked, timing = self._clock(), request.timing
        found: list[Source] = []
        jobs = [
            self._decoder.decode(source, request.decode_urgency)
            if isinstance(source, DecodeJob)
            else None
            for source in sources
        ]
        try:
            for source, job in zip(sources, jobs, strict=True):
                if job is None:
                    found.append(source)
                    continue
                decoded = await job
                timing.queue = max(timing.queue, decoded.started_ms - asked)
                timing.decode += decoded.took_ms
                found.append(decoded)
        finally:
            for job in jobs:
                if job is not None:
                    job.cancel()
        return found


def _size(image: bytes | Pixels) -> int:
    return len(image) if isinstance(image, bytes) else image.nbytes


def _again(request: Request, known: Known, deployment: Deployment, now_ms: float) -> Answer:
    """The answer to a picture that was seen before."""
    manifest, timing = deployment.manifest, request.timing
    request.model, request.model_version = manifest.name, manifest.version
    request.bundle, request.point = deployment.sha256, known.point
    request.expected_accuracy = known.accuracy
    request.reason = "The same picture was answered before."
    timing.total = request.spent_ms(now_ms)
    request.predicted_ms = timing.total
    request.met = request.in_time(now_ms)
    request.outcome = Outcome.ANSWERED if request.met else Outcome.LATE
    request.status = 200
    predictions = top_k(known.scores, manifest.classes, request.terms.top_k)
    return Answer(request, [Result(predictions, known.scores, known.logits)])


def _blame(record: Request, error: Exception) -> None:
    """Say in the record how the request ended, and why."""
    record.status, record.error = status_and_slug(error)
    record.outcome, record.reason = _outcome(error, record.status), str(error)


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
