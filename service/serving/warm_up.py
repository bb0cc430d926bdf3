"""Requests that nobody sent, before the first real one.

Parts timed one by one do not show what a request costs beyond them: changing threads, waking up,
writing the answer. A few whole requests do, and the latency model learns from them as from any
other, so that the first client is promised what this host can keep.
"""

from __future__ import annotations

import asyncio
import logging

from san_core.errors import SanError
from service.images.decoder import Decoder
from service.latency.measurement import PAUSE_S, photograph
from service.request.answer import Answer
from service.request.terms import Terms
from service.scheduling.admission import Admission
from service.serving.bundles.deployment import Deployment, Machinery
from service.serving.choosing import Limits
from service.serving.pipeline import Pipeline

logger = logging.getLogger(__name__)

_REQUESTS = 15
_HURRY = Terms(budget_ms=0.01)


class _Rehearsed:
    """A request whose answer goes nowhere."""

    request_id = client = "warm-up"
    traceparent: str | None = None

    terms = _HURRY

    def __init__(self, image: bytes, started_ms: float) -> None:
        self._image = image
        self.started_ms = started_ms
        self.expected_bytes = len(image)

    async def receive(self) -> bytes:
        """The image."""
        return self._image

    async def answer(self, answer: Answer) -> None:
        """Make the answer, as for a client."""
        answer.body()
        answer.headers()


async def warm_up(
    deployment: Deployment, machinery: Machinery, decoder: Decoder, limits: Limits
) -> None:
    """Send requests one by one that are in such a hurry that the fastest point answers.

    They count nowhere: their admission is their own, and nobody observes them.
    """
    admission = Admission(max_requests=1, max_bytes=machinery.settings.max_body_bytes)
    admission.ready = True
    pipeline = Pipeline(
        admission,
        machinery.schedule,
        decoder,
        machinery.clock,
        limits,
        lambda *_: None,
        lambda _: deployment,
    )
    image = await asyncio.to_thread(photograph, 500, 375, "JPEG")
    try:
        for _ in range(_REQUESTS):
            await asyncio.sleep(PAUSE_S)
            await pipeline.classify(_Rehearsed(image, machinery.clock()))
    except SanError as error:  # limits so tight that no photograph passes
        logger.info("no warm-up: %s", error)
    else:
        logger.info("warmed up with %d requests", _REQUESTS)
