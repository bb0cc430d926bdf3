"""What follows ready: the other points are built, timed and made ready for batches.

They are built one at a time behind requests, and timed only in pauses: a run cannot be interrupted.
Until then their times are estimated. Times that were taken while others used the machine, or that
live traffic contradicts, are taken again, and replace those on disk. What others disturb every time
is kept, too, once measuring it again finds nothing shorter: or a host that is never quiet would
measure at every start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager

from service.engines.base import RunnableNetwork, batch_sizes, traits
from service.engines.weight_cache import BACKGROUND
from service.latency.catalogue import Listing
from service.latency.curves import Curve, Shape
from service.latency.measurement import (
    BEHIND_REQUESTS,
    Least,
    Taken,
    in_steps,
    measure_decode,
    measure_forward,
    missing,
)
from service.runtime.memory import trim
from service.serving.bundles.deployment import Deployment, Machinery

logger = logging.getLogger(__name__)

Quiet = Callable[[], Awaitable[None]]
"""Returns when no request is inside, or after a while."""
Turn = Callable[[], AbstractAsyncContextManager[None]]
"""While it lasts no other process of this host measures."""

_LOOK_AGAIN_S = 0.05
_GAP_S = 0.1
"""Between two turns: waiting processes look every 0.05 s, and a start should not wait for a
whole frontier."""


class _InterruptedError(Exception):
    """Requests came while times were taken."""


class Completion:
    """Completes one deployment."""

    def __init__(
        self,
        deployment: Deployment,
        machinery: Machinery,
        quiet: Quiet,
        is_pause: Callable[[], bool],
        turn: Turn,
    ) -> None:
        self._deployment = deployment
        self._machinery = machinery
        self._quiet = quiet
        self._is_pause = is_pause
        self._turn = turn
        self._clock = machinery.clock
        self._sizes = batch_sizes(machinery.settings.max_batch)
        self.noisy: set[Shape] = set()
        """Measured while others used the machine."""
        self._disturbed: dict[Shape, Least] = {}
        """The shortest times of those."""

    async def run(self) -> None:
        """Complete every point that is worth it, the nearest to demand first."""
        deployment, begun = self._deployment, self._clock()
        if (known := deployment.store.load()) is not None:  # another worker may have been first
            deployment.learn(known.curves)
        left = set(deployment.catalogue.worth_building())
        total = len(left)
        while left:
            listing = self._nearest_to_demand(left)
            left.discard(listing)
            try:
                async with self._turn():
                    await self._complete(listing)
            except Exception as error:  # the others are worth a try
                logger.warning("%s could not be completed: %s", listing.point, error)
            await asyncio.sleep(_GAP_S)
            done = total - len(left)
            logger.info("points complete", extra={"progress": (done, total)})
        known, ready = deployment.model.measurements, self._ready()
        for shape in missing(known, list(ready), self._sizes[-1]):
            await self._measure({shape: ready[shape]})
        for listing in deployment.catalogue.worth_building():
            if listing not in deployment.frontier:
                deployment.cache.evict(listing.point)  # it was built to be measured
        if "PNG" not in deployment.model.measurements.decode:
            await self._measure_decode()
        self._save()
        trim()
        logger.info(
            "complete: %d points of the frontier after %.1f s",
            len(deployment.frontier),
            (self._clock() - begun) / 1000,
        )

    async def measure_again(self, shapes: Collection[Shape] | None = None) -> bool:
        """Measure the ready networks again, or those of `shapes`; True if it was quiet enough."""
        ready = self._ready()
        if shapes is None:  # live traffic contradicts them: the host has changed
            self._disturbed.clear()
        for shape, network in ready.items():
            if shapes is None or shape in shapes:
                await self._pause()
                await self._machinery.builders.submit(network.finish, BACKGROUND)
                await self._measure({shape: network})
        self._save()
        return not self.noisy

    def _nearest_to_demand(self, left: Collection[Listing]) -> Listing:
        """The point closest to those that requests use; at first a ready one, then the best.

        On a GPU the largest: the graphs of the others fit into the memory that its graphs took.
        """
        cache = self._deployment.cache
        if traits(self._deployment.engine).pads:
            return max(left, key=lambda x: (x.point.resolution, x.rank))
        used = [(x.hits, x.point.resolution) for x in cache.entries()]
        hits = sum(n for n, _ in used)
        if not hits:
            return max(left, key=lambda x: (x.point in cache, x.rank))
        wanted = sum(n * resolution for n, resolution in used) / hits
        return min(left, key=lambda x: (abs(x.point.resolution - wanted), -x.rank))

    async def _complete(self, listing: Listing) -> None:
        deployment, cache = self._deployment, self._deployment.cache
        known = deployment.model.measurements
        unmeasured = missing(known, [listing.shape], self._sizes[-1])
        if listing.point not in cache:
            wanted = listing in deployment.frontier or unmeasured
            if not wanted or not cache.has_room_for(listing.point):
                return
            await self._quiet()
            await asyncio.shield(cache.request(listing.point, BACKGROUND))
        network = cache.peek(listing.point)
        if network is None:  # evicted, or too large to be kept
            return
        await self._quiet()
        await self._machinery.builders.submit(network.finish, BACKGROUND)

    def _ready(self) -> dict[Shape, RunnableNetwork]:
        cache = self._deployment.cache
        found = {x.shape: cache.peek(x.point) for x in self._deployment.catalogue.worth_building()}
        return {shape: network for shape, network in found.items() if network is not None}

    async def _measure(self, networks: Mapping[Shape, RunnableNetwork]) -> None:
        async def behind(timed: Callable[[], list[float]]) -> list[float]:
            if not self._is_pause():
                raise _InterruptedError
            return await self._machinery.engine_thread.submit(timed, BACKGROUND)

        taken = None
        while taken is None:
            await self._pause()
            with contextlib.suppress(_InterruptedError):
                async with self._turn():
                    taken = await measure_forward(
                        networks, self._sizes, behind, self._clock, BEHIND_REQUESTS
                    )
        curves = self._sifted(taken)
        steps = {shape: in_steps(curve) for shape, curve in curves.items()}
        self._deployment.learn(steps if traits(self._deployment.engine).pads else curves)
        for (resolution, precision), curve in curves.items():
            noise = ""
            if (resolution, precision) in self.noisy:
                noise = f" (other programs slowed it {taken.noise:.1f} times: measured again later)"
            logger.info(
                "measured %d px %s: %.2f ms alone, %.2f ms in a batch of %d%s",
                resolution,
                precision,
                curve.ms[0],
                curve.ms[-1],
                curve.sizes[-1],
                noise,
            )

    def _sifted(self, taken: Taken) -> dict[Shape, Curve]:
        """The times to go by, and which of them are to be taken again."""
        self.noisy -= taken.curves.keys()
        if not taken.is_noisy:
            for shape in taken.curves:
                self._disturbed.pop(shape, None)
            return taken.curves
        for shape, curve in taken.curves.items():
            if (least := self._disturbed.get(shape)) is None:
                least = self._disturbed[shape] = Least(curve)
            else:
                least.add(curve)
            if not least.is_settled:
                self.noisy.add(shape)
        return {shape: self._disturbed[shape].curve for shape in taken.curves}

    async def _pause(self) -> None:
        while not self._is_pause():  # noqa: ASYNC110 (no event tells)
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _measure_decode(self) -> None:
        deployment, machinery = self._deployment, self._machinery
        await self._pause()
        deployment.model.measurements.decode["PNG"] = await measure_decode(
            deployment.preprocessing,
            sorted(deployment.catalogue.resolutions),
            machinery.decoders.submit,
            machinery.builders.submit,
            self._clock,
            "PNG",
        )

    def _save(self) -> None:
        """Keep the times, but none that noise is in."""
        self._deployment.store.save(self._deployment.model.measurements.without(self.noisy))
