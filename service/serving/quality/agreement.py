"""Accuracy without labels: when idle, some requests are run again at the best point."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from service.observability.ledger import Ledger
from service.scheduling.admission import Admission
from service.serving.bundles.deployment import Deployment
from service.serving.quality.idle_sampler import IdleSampler, Sample
from service.serving.quality.rerun import Rerun


class Agreement(IdleSampler):
    """Compares answers with what the same bundle says at its best point."""

    def __init__(
        self,
        serving: Callable[[], Deployment | None],
        rerun: Rerun,
        admission: Admission,
        ledger: Ledger,
        fraction: float,
        *,
        chance: random.Random | None = None,
        poll_s: float = 0.25,
    ) -> None:
        super().__init__(admission, fraction, chance=chance, poll_s=poll_s)
        self._serving = serving
        self._rerun = rerun
        self._ledger = ledger

    async def compare(self, sample: Sample) -> None:
        """Run one sample at the best point and count whether the answers agree."""
        deployment = self._serving()
        if deployment is None or sample.bundle != deployment.sha256:
            return  # of another bundle, whose classes may be others
        best = deployment.frontier[-1].point
        if best.resolution == sample.resolution:
            return
        ran = await self._rerun(deployment, best, sample.image)
        if ran is None:
            return
        scores, _ = ran
        order = np.argsort(-scores)[:5].tolist()
        self._ledger.observe_truth(
            self._ledger.agreement,
            sample.resolution,
            first=order[0] == sample.predicted,
            top5=sample.predicted in order,
        )
