"""Running a picture once more, at a point of one's choice, while nobody waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np
from numpy.typing import NDArray

from san_core.frontier import OperatingPoint
from service.images.decoder import Decoder
from service.runtime.clock import Clock
from service.scheduling.load import Load, Promise
from service.serving.deployment import Deployment

_NEVER = float("inf")

Rerun = Callable[
    [Deployment, OperatingPoint, bytes], Awaitable[tuple[NDArray[np.float32], float] | None]
]
"""Scores and the engine's time; None if the point is not ready."""


def make_rerun(decoder: Decoder, load: Load, clock: Clock) -> Rerun:
    """With the threads that serve."""

    async def rerun(
        deployment: Deployment, point: OperatingPoint, image: bytes
    ) -> tuple[NDArray[np.float32], float] | None:
        network = deployment.cache.ready(point)
        if network is None:
            return None
        job = decoder.job(image, deployment.preprocessing, point.resolution, _NEVER)
        decoded = await decoder.decode(job, _NEVER)
        cost = deployment.forecast.marginal_ms(point, clock())
        promise = load.enter(Promise(_NEVER, point=point, forward_ms=cost, decode_ms=0.0))
        try:
            with deployment:
                ran = await deployment.loop.run(network, decoded.pixels, promise)
        finally:
            load.leave(promise)
        return ran.scores, ran.forward_ms

    return rerun
