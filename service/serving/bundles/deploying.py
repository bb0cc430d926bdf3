"""From a bundle's file to a deployment that can answer: what happens before ready.

Enough points are built and, if this host was never measured, timed to answer any budget sensibly:
the best of the fastest precision, one in the middle, the smallest. `completion` adds the others.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path

from san_core.bundle import DEFAULT_BUNDLE, Bundle, read
from san_core.frontier import OperatingPoint
from service.engines.base import Engine, RunnableNetwork
from service.latency.catalogue import Catalogue
from service.latency.curves import Measurements
from service.latency.measurement import measure_decode, measure_forward, missing
from service.latency.store import LatencyStore, directories, store_key
from service.serving.bundles.deployment import Deployment, EngineChoice, Machinery, precisions
from service.serving.bundles.room import capacity
from service.serving.bundles.steps import Steps

logger = logging.getLogger(__name__)


async def deploy(
    machinery: Machinery, path: Path | None, choose_engine: EngineChoice, steps: Steps
) -> Deployment:
    """Load a bundle, choose its engine, make its essential points ready.

    Raises, and leaves nothing behind, if the bundle cannot be served.
    """
    path = path or DEFAULT_BUNDLE
    clock, begun = machinery.clock, machinery.clock()
    steps.begin()

    def prepare() -> tuple[Bundle, Engine]:
        bundle = read(path)  # into memory: the file may be overwritten in place
        return bundle, choose_engine(bundle)

    bundle, engine = await machinery.loader.submit(prepare)
    logger.info(
        "loaded bundle %s %s for %s in %.1f s",
        bundle.manifest.name,
        bundle.manifest.version,
        engine.name,
        (clock() - begun) / 1000,
        extra={"facts": engine.describe()},
    )
    try:
        store = _store(machinery, bundle, engine)
        measurements = store.load() or Measurements()
        steps.remember(measurements.start_ms)
        steps.begin()
        networks = await _build(machinery, bundle, engine)
        steps.begin()
        if await _measure(machinery, bundle, networks, measurements):
            store.save(measurements)
        deployment = Deployment(
            machinery, bundle, engine, measurements, store, capacity(machinery.settings, engine)
        )
        for network in networks:
            deployment.cache.adopt(network)
    except BaseException:
        engine.close()
        raise
    return deployment


def _store(machinery: Machinery, bundle: Bundle, engine: Engine) -> LatencyStore:
    """Where this host's times for the architecture are: its weights have no say in them."""
    config, settings = bundle.manifest.network, machinery.settings
    facts = {k: v for k, v in engine.describe().items() if k in ("library", "isa", "threads")}
    key = store_key(
        settings.machine or "",
        engine.name,
        engine.device,
        repr(sorted(facts.items())),
        config.architecture,
        str(config.num_classes),
        str(settings.max_batch),
    )
    return LatencyStore(directories(settings.cache_dir), key)


async def _build(machinery: Machinery, bundle: Bundle, engine: Engine) -> list[RunnableNetwork]:
    """Build the essential points, two at a time: no request needs the cores yet."""
    essential = Catalogue(bundle.manifest, precisions(machinery.settings, engine)).essential()
    begun = machinery.clock()
    threads = (machinery.loader, machinery.builders)

    def make(point: OperatingPoint) -> RunnableNetwork:
        network = engine.build(point)
        network.keep()  # a restart needs it, however soon this process ends
        return network

    built = await asyncio.gather(
        *(threads[i % len(threads)].submit(partial(make, x.point)) for i, x in enumerate(essential))
    )
    logger.info(
        "built %s in %.1f s",
        ", ".join(f"{x.point.resolution} px {x.point.precision}" for x in essential),
        (machinery.clock() - begun) / 1000,
    )
    return list(built)


async def _measure(
    machinery: Machinery,
    bundle: Bundle,
    networks: list[RunnableNetwork],
    measurements: Measurements,
) -> bool:
    """Time what was not measured before on this host, batches apart; whether that is to be kept."""
    clock, begun = machinery.clock, machinery.clock()
    if "JPEG" not in measurements.decode:
        measurements.decode["JPEG"] = await measure_decode(
            bundle.manifest.preprocessing,
            sorted(network.point.resolution for network in networks),
            machinery.decoders.submit,
            machinery.loader.submit,
            clock,
            "JPEG",
        )
    shapes = {(n.point.resolution, str(n.point.precision)): n for n in networks}
    new = {shape: shapes[shape] for shape in missing(measurements, list(shapes), 1)}
    if not new:
        logger.info("using the times measured on this host before")
        return False
    taken = await measure_forward(new, [1], machinery.engine_thread.submit, clock)
    measurements.curves.update(taken.curves)
    logger.info(
        "measured %s in %.1f s",
        ", ".join(f"{r} px {p} {c.ms[0]:.2f} ms" for (r, p), c in taken.curves.items()),
        (clock() - begun) / 1000,
    )
    if taken.is_noisy:
        logger.info("other programs use this machine: it will be measured again when it is quiet")
    return not taken.is_noisy
