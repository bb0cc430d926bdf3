"""Requests of the service's own, before the first real one.

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
from service.request.terms import Terms
from service.scheduling.admission import Admission
from service.serving.bundles.deployment import Deployment, Machinery
from service.serving.choosing import Limits
from service.serving.pipeline import Given, Pipeline

logger = logging.getLogger(__name__)

_REQUESTS = 15
_HURRY = Terms(budget_ms=0.01)


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
            exchange = Given("warm-up", _HURRY, machinery.clock(), "warm-up", image)
            await pipeline.classify(exchange)
            if exchange.answered is not None:  # written as for a client, for its times are learnt
                exchange.answered.body()
                exchange.answered.headers()
    except SanError as error:  # limits so tight that no photograph passes
        logger.info("no warm-up: %s", error)
    else:
        logger.info("warmed up with %d requests", _REQUESTS)
