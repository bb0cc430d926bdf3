"""Requests that nobody sent, before the first real one.

Parts timed one by one do not show what a request costs beyond them: changing threads, waking up,
writing the answer. A few whole requests do, and the latency model learns from them as from any
other, so that the first client is promised what this host can keep.
"""

from __future__ import annotations

import asyncio
import logging

from service.latency.measurement import PAUSE_S, photograph
from service.request.answer import Answer
from service.request.terms import Terms
from service.runtime.clock import Clock
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


async def warm_up(pipeline: Pipeline, clock: Clock) -> None:
    """Send requests one by one that are in such a hurry that the fastest point answers."""
    image = await asyncio.to_thread(photograph, 500, 375, "JPEG")
    for _ in range(_REQUESTS):
        await asyncio.sleep(PAUSE_S)
        await pipeline.classify(_Rehearsed(image, clock()))
    logger.info("warmed up with %d requests", _REQUESTS)
