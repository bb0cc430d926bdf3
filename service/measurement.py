"""Taking this host's times at start: a few runs per point, a few images to decode; seconds in all."""

from __future__ import annotations

import io
import logging
from collections.abc import Awaitable, Callable, Sequence
from statistics import median

import numpy as np
from PIL import Image

from san_core.frontier import OperatingPoint
from san_core.preprocessing import ImageHeader, Preprocessing
from service.catalogue import Listing
from service.clock import Clock
from service.decoding import to_input
from service.engines.base import RunnableNetwork
from service.latency_model import Curve, DecodeCost, DecodeWork, Measurements, decode_work

logger = logging.getLogger(__name__)

_MIN_RUNS, _MAX_RUNS = 8, 40
_DECODE_SIZES = ((320, 240), (500, 375), (1600, 1200), (3200, 2400))
_DECODE_RUNS = 4

Execute = Callable[[Callable[[], list[float]]], Awaitable[list[float]]]
"""Runs a function on the thread that such work has in service, so what is timed is what will be."""


def batch_sizes(max_batch: int) -> tuple[int, ...]:
    """Sizes to measure: 1, 2, 4 … and the largest."""
    sizes = {1, max_batch}
    size = 2
    while size < max_batch:
        sizes.add(size)
        size *= 2
    return tuple(sorted(sizes))


def time_runs(
    network: RunnableNetwork, batch: int, clock: Clock, *, limit_ms: float, runs: int
) -> list[float]:
    """Time some runs of one batch size, after two that warm up; at least three, or until the limit."""
    side = network.point.resolution
    images = np.random.default_rng(0).standard_normal((batch, side, side, 3), dtype=np.float32)
    network.run(images)
    network.run(images)
    times: list[float] = []
    begun = clock()
    while len(times) < runs and (len(times) < 3 or clock() - begun < limit_ms):
        started = clock()
        network.run(images)
        times.append(clock() - started)
    return times


async def measure_forward(
    listings: Sequence[Listing],
    build: Callable[[OperatingPoint], Awaitable[RunnableNetwork]],
    execute: Execute,
    clock: Clock,
    measurements: Measurements,
    *,
    max_batch: int,
    limit_ms: float = 120.0,
) -> None:
    """Measure each listing's shape once, smallest first, and say so in the log."""
    shapes = {listing.shape: listing for listing in listings}
    begun = clock()
    for done, (shape, listing) in enumerate(shapes.items(), 1):
        before = clock()
        network = await build(listing.point)
        measurements.build_ms[shape[1]] = max(
            clock() - before, measurements.build_ms.get(shape[1], 0.0)
        )
        sizes = batch_sizes(max_batch)
        medians, ratios = [], []
        for size in sizes:
            runs = _MAX_RUNS if size == 1 else _MIN_RUNS
            limit = limit_ms if size == 1 else limit_ms / 2

            def timed(n: int = size, r: int = runs, most: float = limit) -> list[float]:
                return time_runs(network, n, clock, limit_ms=most, runs=r)  # noqa: B023

            times = await execute(timed)
            medians.append(median(times))
            if size == 1:
                ratios = [t / medians[0] for t in times]
        measurements.curves[shape] = Curve(sizes, _rising(medians))
        measurements.ratios[shape] = ratios
        logger.info(
            "measured %d of %d: %d px %s, %.2f ms alone, %.2f ms in a batch of %d",
            done,
            len(shapes),
            *shape,
            medians[0],
            medians[-1],
            sizes[-1],
        )
    logger.info("measured %d points in %.1f s", len(shapes), (clock() - begun) / 1000)


def _rising(times: Sequence[float]) -> tuple[float, ...]:
    """A larger batch never counts as faster, whatever the noise said."""
    rising: list[float] = []
    for ms in times:
        rising.append(max(ms, rising[-1]) if rising else ms)
    return tuple(rising)


def photograph(width: int, height: int, image_format: str) -> bytes:
    """An image with the detail of a photograph: smooth shapes and some grain."""
    random = np.random.default_rng(width)
    coarse = random.integers(0, 256, (height // 16 + 2, width // 16 + 2, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    grain = random.normal(0, 8, (height, width, 1))
    pixels = (np.asarray(smooth, dtype=np.float32) + grain).clip(0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, image_format, quality=85)
    return out.getvalue()


async def measure_decode(
    preprocessing: Preprocessing,
    resolutions: Sequence[int],
    execute: Execute,
    clock: Clock,
    measurements: Measurements,
) -> None:
    """Fit the cost of decoding JPEG and PNG for the smallest and the largest resolution."""
    targets = sorted({min(resolutions), max(resolutions)})
    for image_format in ("JPEG", "PNG"):
        # PNGs of camera size are rare and slow to make; two sizes fix their line.
        sizes = _DECODE_SIZES if image_format == "JPEG" else _DECODE_SIZES[:2]
        found: list[tuple[DecodeWork, float]] = []
        for width, height in sizes:
            data = photograph(width, height, image_format)
            header = ImageHeader(image_format, width, height, 1)
            for resolution in targets:

                def timed(image: bytes = data, side: int = resolution) -> list[float]:
                    times = []
                    for _ in range(_DECODE_RUNS):
                        started = clock()
                        to_input(image, preprocessing, side)
                        times.append(clock() - started)
                    return times

                times = await execute(timed)
                work = decode_work(header, len(data), preprocessing.shorter_side(resolution))
                found.append((work, median(times)))
        cost = DecodeCost.fit(found)
        measurements.decode[image_format] = cost
        measurements.decode_ratios += [max(0.5, ms / max(cost.at(work), 1e-3)) for work, ms in found]
        logger.info("measured decoding %s: %.2f ms at 500 x 375", image_format, found[2][1])
