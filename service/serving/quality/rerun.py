"""Running a picture once more at a given point, while no request waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np
from numpy.typing import NDArray

from san_core.frontier import OperatingPoint
from service.images.decoder import Decoder
from service.request.request import Request
from service.request.terms import Terms
from service.runtime.clock import Clock
from service.serving.bundles.deployment import Deployment

_NEVER = float("inf")

Rerun = Callable[
    [Deployment, OperatingPoint, bytes], Awaitable[tuple[NDArray[np.float32], float] | None]
]
"""Scores and the engine's time; None if the point is not ready."""


def make_rerun(decoder: Decoder, clock: Clock) -> Rerun:
    """With the threads that serve."""

    async def rerun(
        deployment: Deployment, point: OperatingPoint, image: bytes
    ) -> tuple[NDArray[np.float32], float] | None:
        network = deployment.cache.ready(point)
        if network is None:
            return None
        job = decoder.job(image, deployment.preprocessing, point.resolution, _NEVER)
        decoded = await decoder.decode(job, _NEVER)
        # It is not in the schedule, so no request is refused because of it.
        request = Request("rerun", Terms(resolution=point.resolution), clock())
        request.point, request.side, request.due_ms = point, point.resolution, _NEVER
        with deployment:
            ran = await deployment.executor.run(request, [decoded], network)
        return ran.scores[0], request.timing.forward

    return rerun
