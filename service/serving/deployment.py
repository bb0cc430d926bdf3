"""One bundle in service: its engine, its ready networks, its latencies, its frontier."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from san_core.bundle import DEFAULT_BUNDLE, Bundle, Manifest
from san_core.cost import Cost
from san_core.frontier import OperatingPoint, frontier
from service.engines.base import Engine, RunnableNetwork
from service.engines.weight_cache import BACKGROUND, WeightCache
from service.latency.catalogue import Catalogue, Listing
from service.latency.costs import count_costs
from service.latency.measurement import measure_decode, measure_forward, measure_standin
from service.latency.model import LatencyModel, Measurements
from service.latency.store import LatencyStore, candidates, host_name, store_key
from service.observability.ledger import Ledger
from service.processes.crew import Crew
from service.request.terms import Terms
from service.runtime.clock import Clock
from service.runtime.thread_pool import Workers
from service.scheduling.executor import EngineLoop
from service.scheduling.forecast import Forecast
from service.scheduling.load import Load
from service.serving.bundle_reader import BundleReader
from service.settings import MEGA, Settings

logger = logging.getLogger(__name__)

_STANDINS = 2
"""Stand-in networks kept: a cold point needs one for as long as it takes to compile."""


class Engines(NamedTuple):
    """What runs a bundle."""

    own: Engine
    standin: Engine | None
    """Ready in milliseconds: answers for a point whose weights the own engine still compiles."""


EngineChoice = Callable[[Bundle], Engines]


class Build(NamedTuple):
    """A network on its way."""

    network: asyncio.Future[RunnableNetwork]
    own: bool
    """Whether the own engine makes it; a stand-in's times teach the latency model nothing."""


@dataclass(frozen=True)
class Machinery:
    """What outlives a bundle: the threads and the load on them."""

    settings: Settings
    clock: Clock
    load: Load
    ledger: Ledger
    engine_thread: Workers
    decoders: Workers
    loader: Workers
    """Reads bundles and makes engines. Not nice, as builders are: an engine's own threads are as
    nice as who made it."""
    builders: Workers
    crew: Crew = field(default_factory=Crew)
    reader: BundleReader = field(default_factory=BundleReader)


class Deployment:
    """A bundle that is being served; made by `deploy`."""

    def __init__(
        self,
        machinery: Machinery,
        bundle: Bundle,
        engines: Engines,
        sha256: str,
        measurements: Measurements,
    ) -> None:
        engine = engines.own
        settings, clock = machinery.settings, machinery.clock
        self.bundle = bundle
        self.engine = engine
        self._engines = engines
        self.sha256 = sha256
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()
        self._failed: set[OperatingPoint] = set()
        """Points that could not be restored."""
        self.preprocessing = bundle.manifest.preprocessing
        self.catalogue = Catalogue(bundle.manifest, _precisions(settings, engine))
        self.model = LatencyModel(measurements, machinery.load.is_loaded)
        self.cache = WeightCache(
            engine.build,
            machinery.builders,
            capacity_bytes=settings.cache_megabytes * MEGA,
            max_networks=settings.max_networks,
            clock=clock,
            on_built=self._built,
        )
        self._standins: WeightCache | None = None
        if engines.standin is not None:
            self._standins = WeightCache(
                engines.standin.build,
                machinery.decoders,
                capacity_bytes=settings.cache_megabytes * MEGA,
                max_networks=_STANDINS,
                clock=clock,
            )
        self.loop = EngineLoop(
            machinery.engine_thread,
            self.model,
            machinery.load,
            clock,
            max_batch=settings.max_batch,
            window_ms=settings.batch_window_ms,
            quantile=settings.quantile,
            on_batch=machinery.ledger.observe_batch,
        )
        self.forecast = Forecast(
            self.model,
            machinery.load,
            self.cache,
            self.preprocessing,
            quantile=settings.quantile,
            max_batch=settings.max_batch,
            queue_safety=settings.queue_safety,
            load_reserve=settings.load_reserve,
        )
        curves = measurements.curves
        self.frontier: tuple[Listing, ...] = tuple(
            frontier(
                [x for x in self.catalogue.listings if x.shape in curves],
                lambda x: (curves[x.shape].at(1), x.rank),
            )
        )
        """The points that no other beats, by what was measured; fastest first."""
        self._machinery = machinery
        self.costs: Mapping[tuple[int, str], Cost] = {}
        """Multiply-adds and bytes per listed shape; counted by `deploy`, off the loop."""

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
        if terms.resolution is None and terms.mode is None:
            return self.frontier
        return self.catalogue.find(terms.resolution, terms.mode)

    def request(self, point: OperatingPoint) -> Build:
        """Start making a cold point ready, by whatever answers sooner.

        The own engine builds it in any case, for those who come after.
        """
        own = self.cache.request(point)
        if self._standins is None:
            return Build(own, own=True)
        if self.model.standin_ms(point.resolution) >= self.model.build_ms(point.precision):
            return Build(own, own=True)
        ready = self._standins.ready(point)
        if ready is None:
            return Build(self._standins.request(point), own=False)
        done: asyncio.Future[RunnableNetwork] = asyncio.get_running_loop().create_future()
        done.set_result(ready)
        return Build(done, own=False)

    async def warm_frontier(self) -> None:
        """Make every point of the frontier ready, the most accurate first."""
        await self.cache.warm(listing.point for listing in reversed(self.frontier))

    def restore(self, point: OperatingPoint) -> None:
        """Make a point of the frontier ready again in the background.

        Only where it fits: a cache that is too small for the frontier would build for ever. One
        that failed to build waits for a request that needs it.
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
        if self._standins is not None:
            await self._standins.close()
        for engine in self._engines:
            if engine is not None:
                engine.close()

    def _built(self, point: OperatingPoint, took_ms: float) -> None:
        self.model.observe_build(point.precision, took_ms)
        self._machinery.ledger.observe_build(point, took_ms)


def _precisions(settings: Settings, engine: Engine) -> tuple[str, ...]:
    if settings.precision == "auto":
        return engine.precisions
    return tuple(p for p in engine.precisions if p == settings.precision) or engine.precisions[:1]


async def deploy(
    machinery: Machinery, path: Path | None, choose_engine: EngineChoice
) -> Deployment:
    """Load a bundle, choose its engine, measure what was not measured before.

    Raises, and leaves nothing behind, if the bundle cannot be served.
    """
    path = path or DEFAULT_BUNDLE

    def prepare() -> tuple[Bundle, Engines, str]:
        bundle, sha256 = machinery.reader.read(path)
        return bundle, choose_engine(bundle), sha256

    bundle, engines, sha256 = await machinery.loader.submit(prepare)
    engine = engines.own
    facts = engine.describe()
    logger.info(
        "bundle %s %s on %s (%s)", bundle.manifest.name, bundle.manifest.version, engine.name, facts
    )
    try:
        key = store_key(
            host_name(),
            engine.name,
            engine.device,
            repr(sorted(facts.items())),
            sha256,
            str(machinery.settings.max_batch),
        )
        places = candidates(machinery.settings.cache_dir, path)
        if machinery.crew.directory is not None:
            places.append(machinery.crew.directory)  # so that one worker measures for all
        store = LatencyStore(places, key)
        measurements, networks = await _measured(machinery, bundle, engines, store)
        deployment = Deployment(machinery, bundle, engines, sha256, measurements)
        deployment.costs = await machinery.builders.submit(
            lambda: count_costs(bundle, (x.shape for x in deployment.catalogue.listings))
        )
        chosen = {listing.point for listing in deployment.frontier}
        for network in networks:
            if network.point in chosen:  # the others were only built to be measured
                deployment.cache.adopt(network)
        del networks
        # The fastest point is ready whatever becomes of the others.
        await deployment.cache.get(deployment.frontier[0].point)
        machinery.reader.serves(sha256)
    except BaseException:
        for each in engines:
            if each is not None:
                each.close()
        raise
    return deployment


async def _measured(
    machinery: Machinery, bundle: Bundle, engines: Engines, store: LatencyStore
) -> tuple[Measurements, list[RunnableNetwork]]:
    """The host's times, from the store or taken now, and the networks that were built for it."""
    settings, clock, engine = machinery.settings, machinery.clock, engines.own
    catalogue = Catalogue(bundle.manifest, _precisions(settings, engine))
    measurements = store.load() or Measurements()
    missing = [x for x in catalogue.worth_measuring() if x.shape not in measurements.curves]
    if not missing:
        logger.info("using the latencies measured on this host before")
        return measurements, []
    begun = clock()
    await measure_decode(
        bundle.manifest.preprocessing,
        sorted(catalogue.resolutions),
        machinery.decoders.submit,
        machinery.builders.submit,
        clock,
        measurements,
    )
    networks = await measure_forward(
        missing,
        lambda point: machinery.builders.submit(lambda: engine.build(point)),
        machinery.engine_thread.submit,
        clock,
        measurements,
        max_batch=settings.max_batch,
        capacity_bytes=settings.cache_megabytes * MEGA,
    )
    if engines.standin is not None:
        await measure_standin(
            sorted(catalogue.resolutions),
            engines.standin.build,
            machinery.engine_thread.submit,
            clock,
            measurements,
        )
    kept = store.save(measurements)
    logger.info("measured this host in %.1f s; kept in %s", (clock() - begun) / 1000, kept)
    return measurements, networks
