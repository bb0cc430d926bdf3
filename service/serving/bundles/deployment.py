"""One bundle in service: its engine, its ready networks, its latencies, its frontier."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from san_core.bundle import Bundle, Manifest
from san_core.frontier import OperatingPoint, frontier
from service.engines.base import Engine, RunnableNetwork, traits
from service.engines.build_limits import BuildLimits
from service.engines.weight_cache import BACKGROUND, WeightCache
from service.errors import OverloadedError
from service.latency.catalogue import Catalogue, Listing
from service.latency.costs import Costs
from service.latency.curves import Curve, Measurements, Shape
from service.latency.idle import IdleHost
from service.latency.measurement import monotone
from service.latency.model import LatencyModel
from service.latency.store import LatencyStore
from service.observability.ledger import Ledger
from service.request.terms import Terms
from service.runtime.clock import Clock
from service.runtime.thread_pool import Workers
from service.scheduling.executor import Executor
from service.scheduling.pricing import Host
from service.scheduling.schedule import Schedule
from service.scheduling.scheduler import Scheduler
from service.settings import Settings

logger = logging.getLogger(__name__)

EngineChoice = Callable[[Bundle], Engine]
_BUILDS_AGAIN_MS = 10_000.0
"""When a client that asked for too many cold points may come back: it gets a few a minute."""


@dataclass(frozen=True)
class Machinery:
    """What outlives a bundle: the threads and the load on them."""

    settings: Settings
    clock: Clock
    schedule: Schedule
    host: Host
    """What shares the cores with the engine."""
    ledger: Ledger
    engine_thread: Workers
    """One, or as many as an engine takes batches at a time."""
    decoders: Workers
    large_decoder: Workers
    """Decodes what takes long: one, and nice, so that nothing else waits for it."""
    loader: Workers
    """Reads bundles and makes engines. As nice as whatever computes: an engine's own threads are as
    nice as the thread that made them."""
    builders: Workers


class Deployment:
    """A bundle that is being served; made by `deploy`."""

    def __init__(
        self,
        machinery: Machinery,
        bundle: Bundle,
        engine: Engine,
        measurements: Measurements,
        store: LatencyStore,
        capacity_bytes: int,
    ) -> None:
        settings, clock = machinery.settings, machinery.clock
        self.bundle = bundle
        self.engine = engine
        self.sha256 = bundle.sha256
        self.store = store
        """Where its times are kept."""
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()
        self._build_limits = BuildLimits(clock)
        self.is_complete = False
        """Whether all that follows ready is done: nothing is built or measured unless asked for."""
        self._failed: set[OperatingPoint] = set()
        """Points that could not be restored."""
        self.preprocessing = bundle.manifest.preprocessing
        self.least_side = cache(self.preprocessing.least_side)
        self.catalogue = Catalogue(bundle.manifest, precisions(settings, engine))
        self.model = LatencyModel(measurements)
        self.cache = WeightCache(
            engine.build,
            machinery.builders,
            capacity_bytes=capacity_bytes,
            max_networks=settings.max_networks,
            clock=clock,
            on_built=self._built,
        )
        self.scheduler = Scheduler(
            self.model,
            machinery.schedule,
            (),
            replace(machinery.host, shared=engine.device == "cpu"),
            promise=settings.promise,
            max_batch=settings.max_batch,
            is_ready=self.cache.__contains__,
        )
        machinery.engine_thread.grow(traits(engine).in_flight)
        self.executor = Executor(
            machinery.engine_thread,
            self.scheduler,
            clock,
            in_flight=traits(engine).in_flight,
            network_for=self.cache.peek,
            wants_late=machinery.schedule.wants_late,
            on_batch=machinery.ledger.observe_batch,
        )
        self._machinery = machinery
        self.cost = Costs(engine)
        """Multiply-adds and bytes of a shape."""
        self.frontier: tuple[Listing, ...] = ()
        """The points that no other beats, by what was measured or interpolated; fastest first."""
        self._draw_frontier()

    def _draw_frontier(self) -> None:
        self.frontier = tuple(
            frontier(
                self.catalogue.worth_building(),
                lambda x: (self.model.curve(x.shape).unit_ms, x.rank),
            )
        )
        self.scheduler.costing.frontier = self.frontier
        self.cache.protect(listing.point for listing in self.frontier)
        self.idle_host = IdleHost(self.model, self.frontier, self.least_side)

    def __enter__(self) -> Deployment:
        """Stay open for a request that began with it."""
        self._users += 1
        self._unused.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        if not self._users:
            self._unused.set()

    async def unused(self) -> None:
        """Wait until no request uses the deployment."""
        await self._unused.wait()

    @property
    def manifest(self) -> Manifest:
        """What the bundle says about itself."""
        return self.bundle.manifest

    def considered(self, terms: Terms) -> Sequence[Listing]:
        """The points the policy chooses among: the frontier, or what a pin leaves."""
        if terms.resolution is None and terms.mode is None and terms.precision is None:
            return self.frontier
        return self.catalogue.find(terms.resolution, terms.mode, terms.precision)

    def request(self, point: OperatingPoint, client: str = "") -> asyncio.Future[RunnableNetwork]:
        """Start making a cold point ready, unless clients have asked for too many of their own."""
        cache = self.cache
        if not (
            cache.is_protected(point)
            or cache.is_building(point)
            or self._build_limits.allow(client, cache.guest_builds)
        ):
            raise OverloadedError(
                f"{point.resolution} px is not ready, and too many other resolutions are being "
                "built. Pin one that GET /resolutions lists as cached, or try again later.",
                _BUILDS_AGAIN_MS,
                own=True,
            )
        return cache.request(point)

    def learn(self, curves: Mapping[Shape, Curve]) -> None:
        """Take over newly measured times, and draw the frontier with them."""
        self.model.update(monotone({**self.model.measurements.curves, **curves}))
        self._draw_frontier()

    async def count_costs(self) -> None:
        """Count what every listed point costs: it traces the network, so not on the event loop."""
        unknown = self.cost.unknown(listing.shape for listing in self.catalogue.listings)
        if unknown:
            await self._machinery.builders.submit(lambda: [self.cost(shape) for shape in unknown])

    async def warm_frontier(self) -> None:
        """Make every point of the frontier ready, the most accurate first."""
        await self.cache.warm(listing.point for listing in reversed(self.frontier))

    def restore(self, point: OperatingPoint) -> None:
        """Make a point of the frontier ready again in the background.

        Only where it fits: a cache that is too small for the frontier would never stop
        building. One that failed to build waits for a request that needs it.
        """
        cache = self.cache
        if cache.is_building(point) or point in self._failed or not cache.has_room_for(point):
            return
        if any(listing.point == point for listing in self.frontier):
            logger.info("making %d px ready again: there are budgets for it", point.resolution)
            cache.request(point, BACKGROUND).add_done_callback(partial(self._restored, point))

    def _restored(self, point: OperatingPoint, done: asyncio.Future[RunnableNetwork]) -> None:
        if not done.cancelled() and done.exception() is not None:
            self._failed.add(point)

    async def close(self) -> None:
        """Let go of the networks and the engine."""
        await self.cache.close()
        # Not on the event loop: a GPU waits until nothing is captured.
        await asyncio.to_thread(self.engine.close)

    def _built(self, point: OperatingPoint, took_ms: float) -> None:
        self.model.observe_build(point.precision, took_ms)
        self._machinery.ledger.observe_build(point, took_ms)
        network = self.cache.peek(point)
        if network is not None and traits(self.engine).pads:
            # Until its batches are captured they are split into single images.
            finishing = self._machinery.builders.submit(network.finish, BACKGROUND)
            finishing.add_done_callback(partial(_finished, point))


def _finished(point: OperatingPoint, done: asyncio.Future[None]) -> None:
    if not done.cancelled() and (error := done.exception()):
        logger.warning("batches of %s stay split: %s", point, error)


def precisions(settings: Settings, engine: Engine) -> tuple[str, ...]:
    """The precisions that the policy considers."""
    if settings.precision == "auto":
        return engine.precisions
    return tuple(p for p in engine.precisions if p == settings.precision) or engine.precisions[:1]
