"""Accuracy without labels: when idle, some requests are run again at the best point."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from service.images.decoder import Decoder
from service.observability.ledger import Ledger
from service.request.record import RequestRecord
from service.runtime.clock import Clock
from service.scheduling.admission import Admission
from service.scheduling.load import Load, Promise
from service.settings import Settings

if TYPE_CHECKING:
    from service.serving.pipeline import Pipeline

logger = logging.getLogger(__name__)

_PENDING = 16
_PENDING_BYTES = 32_000_000
_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class _Sample:
    image: bytes
    resolution: int
    predicted: int
    model: tuple[str, str]
    """Name and version of the bundle that answered."""


class Agreement:
    """Keeps a few sampled requests and re-runs them while nobody is inside."""

    def __init__(
        self,
        pipeline: Pipeline,
        decoder: Decoder,
        admission: Admission,
        load: Load,
        ledger: Ledger,
        settings: Settings,
        clock: Clock,
        *,
        chance: random.Random | None = None,
        poll_s: float = 0.05,
    ) -> None:
        self._pipeline = pipeline
        self._decoder = decoder
        self._admission = admission
        self._load = load
        self._ledger = ledger
        self._clock = clock
        self._fraction = settings.agreement_fraction
        self._chance = chance or random.Random()
        self._poll_s = poll_s
        self._pending: deque[_Sample] = deque(maxlen=_PENDING)

    def offer(self, record: RequestRecord, image: bytes, predicted: int) -> None:
        """Perhaps keep a request for later; the oldest make room."""
        if self._fraction <= 0 or self._chance.random() >= self._fraction or record.point is None:
            return
        if sum(len(s.image) for s in self._pending) + len(image) <= _PENDING_BYTES:
            model = record.model, record.model_version
            self._pending.append(_Sample(image, record.point.resolution, predicted, model))

    async def watch(self) -> None:
        """Whenever nobody came for a while, look at samples.

        The pause between two requests of one client is too short: the next would find the engine
        taken.
        """
        admission, seen = self._admission, -1
        while True:
            await asyncio.sleep(self._poll_s)
            calm, seen = admission.facts.admitted == seen, admission.facts.admitted
            while (
                calm
                and self._pending
                and admission.is_idle
                and admission.facts.admitted == seen
                and not admission.draining
            ):
                sample = self._pending.popleft()
                try:
                    await self.compare(sample)
                except Exception:
                    logger.exception("a sampled request could not be run again")

    async def compare(self, sample: _Sample) -> None:
        """Run one sample at the best point and count whether the answers agree."""
        deployment = self._pipeline.deployment
        if deployment is None:
            return
        manifest = deployment.manifest
        if sample.model != (manifest.name, manifest.version):
            return  # of another bundle, whose classes may be others
        best = deployment.frontier[-1].point
        network = deployment.cache.ready(best)
        if network is None or best.resolution == sample.resolution:
            return
        job = self._decoder.job(sample.image, deployment.preprocessing, best.resolution, _NEVER)
        decoded = await self._decoder.decode(job, _NEVER)
        cost = deployment.forecast.marginal_ms(best, self._clock())
        promise = self._load.enter(Promise(_NEVER, point=best, forward_ms=cost, decode_ms=0.0))
        try:
            ran = await deployment.loop.run(network, decoded.pixels, promise)
        finally:
            self._load.leave(promise)
        order = np.argsort(-ran.scores)[:5].tolist()
        self._ledger.observe_truth(
            self._ledger.agreement,
            sample.resolution,
            first=order[0] == sample.predicted,
            top5=sample.predicted in order,
        )
