"""Taking this host's times at start: a few runs per point, a few images; seconds in all."""

from __future__ import annotations

import functools
import io
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import accumulate
from statistics import median

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from san_core.frontier import OperatingPoint, frontier
from san_core.preprocessing import ImageHeader, Preprocessing
from service.engines.base import RunnableNetwork, batch_sizes
from service.images.decoder import to_input
from service.latency.catalogue import Listing
from service.latency.model import (
    Curve,
    DecodeCost,
    DecodeWork,
    Measurements,
    Shape,
    decode_work,
)
from service.latency.quantiles import quantile
from service.runtime.clock import Clock

logger = logging.getLogger(__name__)

_ROUNDS = 3
_ALONE = (10, 60.0)
_TOGETHER = (4, 60.0)
"""(runs, ms): how often a single image runs per round, and a batch in all; what ends first."""
PAUSE_S = 0.003
"""Before what is timed alone: a request that comes by itself finds caches cold, threads asleep."""
_DECODE_SIZES = ((320, 240), (500, 375), (1600, 1200))
_DECODE_RUNS = 3
_BASE = 0.25
"""The quantile that counts as a point's own time: what is above it is mostly others' doing."""

Execute = Callable[[Callable[[], list[float]]], Awaitable[list[float]]]
"""Runs a function on the thread that does such work in service: what is timed is what will be."""


def time_runs(
    network: RunnableNetwork,
    batch: int,
    clock: Clock,
    *,
    runs: int,
    limit_ms: float,
    pause_s: float = 0.0,
) -> list[float]:
    """Time runs of one batch size after one that warms up; two at least, or until the limit."""
    side = network.point.resolution
    images = np.random.default_rng(0).standard_normal((batch, side, side, 3), dtype=np.float32)
    network.run(images)
    times: list[float] = []
    begun = clock()
    while len(times) < runs and (len(times) < 2 or clock() - begun < limit_ms):
        time.sleep(pause_s)
        started = clock()
        network.run(images)
        times.append(clock() - started)
    return times


class ForwardMeasurement:
    """Measures shapes in rounds, so that a neighbour's noise falls on all of them alike."""

    def __init__(self, execute: Execute, clock: Clock, max_batch: int) -> None:
        self._execute = execute
        self._clock = clock
        self._sizes = batch_sizes(max_batch)
        self._times: dict[Shape, dict[int, list[float]]] = {}
        self._beside: dict[Shape, list[float]] = {}
        """Times of single images taken just before those of batches."""

    async def measure(self, networks: Mapping[Shape, RunnableNetwork]) -> None:
        """Measure these networks; they must all fit into memory together."""
        for round_number in range(_ROUNDS):
            for shape, network in networks.items():
                times = self._times.setdefault(shape, {n: [] for n in self._sizes})
                for n in self._sizes:
                    if n == 1 or round_number == 0:
                        times[n] += await self._timed(network, n)
                if round_number == 0:
                    self._beside[shape] = list(times[1])
                    logger.info(
                        "measured %d px %s: %.2f ms alone, %.2f ms in a batch of %d",
                        *shape,
                        median(times[1]),
                        median(times[self._sizes[-1]]),
                        self._sizes[-1],
                    )

    async def _timed(self, network: RunnableNetwork, n: int) -> list[float]:
        runs, limit = _ALONE if n == 1 else _TOGETHER
        pause = PAUSE_S if n == 1 else 0.0
        return await self._execute(
            lambda: time_runs(network, n, self._clock, runs=runs, limit_ms=limit, pause_s=pause)
        )

    def into(self, measurements: Measurements) -> None:
        """Enter what was found: the lower quartile as base time, and the spread above it.

        A batch counts by its ratio to the single images beside it: the host may have been slow
        just then, and which batch gets the most done must not depend on that.
        """
        base = {}
        for shape, taken in self._times.items():
            pace = _base(taken[1]) / _base(self._beside[shape])
            base[shape] = [_base(taken[n]) * (1.0 if n == 1 else pace) for n in self._sizes]
        for shape, times in _monotone(base).items():
            measurements.curves[shape] = Curve(self._sizes, tuple(times))
            measurements.ratios[shape] = [ms / times[0] for ms in self._times[shape][1]]


def _base(times: list[float]) -> float:
    return quantile(sorted(times), _BASE)


def _monotone(base: Mapping[Shape, list[float]]) -> dict[Shape, list[float]]:
    """Neither a smaller input nor a smaller batch is ever slower, whatever the noise said.

    From the largest resolution down, each time is at most that of the next larger one; then from
    the smallest batch up, each is at least that of the next smaller.
    """
    limits: dict[str, list[float]] = {}
    found = {}
    for shape in sorted(base, reverse=True):
        limit = limits.get(shape[1], [float("inf")] * len(base[shape]))
        times = [min(pair) for pair in zip(base[shape], limit, strict=True)]
        limits[shape[1]] = times
        found[shape] = list(accumulate(times, max))
    return found


async def measure_forward(
    listings: Sequence[Listing],
    build: Callable[[OperatingPoint], Awaitable[RunnableNetwork]],
    execute: Execute,
    clock: Clock,
    measurements: Measurements,
    *,
    max_batch: int,
    capacity_bytes: int,
) -> list[RunnableNetwork]:
    """Build and measure each listing's shape; return the networks of the frontier.

    As many are measured together as fit into `capacity_bytes`; who is beaten then makes room.
    """
    shapes = {listing.shape: listing for listing in listings}
    measuring = ForwardMeasurement(execute, clock, max_batch)
    group: dict[Shape, RunnableNetwork] = {}
    kept: dict[Shape, RunnableNetwork] = {}
    begun = clock()
    for done, shape in enumerate(shapes, 1):
        before = clock()
        network = group[shape] = await build(shapes[shape].point)
        took = clock() - before
        measurements.build_ms[shape[1]] = max(took, measurements.build_ms.get(shape[1], 0.0))
        logger.info("generated %d of %d: %d px %s in %.0f ms", done, len(shapes), *shape, took)
        taken = sum(n.memory_bytes for n in (*group.values(), *kept.values()))
        if taken + network.memory_bytes > capacity_bytes or done == len(shapes):
            await measuring.measure(group)
            measuring.into(measurements)
            unbeaten = frontier(
                [shapes[shape] for shape in (*kept, *group)],
                lambda listing: (measurements.curves[listing.shape].at(1), listing.rank),
            )
            kept = _fitting({x.shape: (kept | group)[x.shape] for x in unbeaten}, capacity_bytes)
            group = {}
    logger.info("measured %d points in %.1f s", len(shapes), (clock() - begun) / 1000)
    return list(kept.values())


def _fitting(networks: Mapping[Shape, RunnableNetwork], room: int) -> dict[Shape, RunnableNetwork]:
    """Of networks in order of preference those that fit."""
    found = {}
    for shape, network in networks.items():
        if network.memory_bytes <= room:
            found[shape] = network
            room -= network.memory_bytes
    return found


async def measure_standin(
    resolutions: Sequence[int],
    build: Callable[[OperatingPoint], RunnableNetwork],
    execute: Execute,
    clock: Clock,
    measurements: Measurements,
) -> None:
    """Time the stand-in from nothing to an answer, at the ends and the middle of the range."""
    for resolution in {resolutions[0], resolutions[len(resolutions) // 2], resolutions[-1]}:
        images = np.zeros((1, resolution, resolution, 3), dtype=np.float32)

        def once(side: int = resolution, batch: NDArray[np.float32] = images) -> list[float]:
            times = []
            for _ in range(3):
                started = clock()
                build(OperatingPoint(side)).run(batch)
                times.append(clock() - started)
            return times

        measurements.standin_ms[resolution] = median(await execute(once))
    times = ", ".join(f"{r} px {ms:.1f} ms" for r, ms in measurements.standin_ms.items())
    logger.info("measured the stand-in from nothing to an answer: %s", times)


def photograph(width: int, height: int, image_format: str) -> bytes:
    """An image with the detail of a photograph: smooth shapes and some grain."""
    random = np.random.default_rng(width)
    coarse = random.integers(0, 256, (height // 16 + 2, width // 16 + 2, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    grain = random.integers(-12, 13, (height, width, 1), dtype=np.int16)
    pixels = (np.asarray(smooth, dtype=np.int16) + grain).clip(0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, image_format, quality=85)
    return out.getvalue()


async def measure_decode(
    preprocessing: Preprocessing,
    resolutions: Sequence[int],
    execute: Execute,
    make: Callable[[Callable[[], bytes]], Awaitable[bytes]],
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
            data = await make(functools.partial(photograph, width, height, image_format))
            header = ImageHeader(image_format, width, height, 1)
            for resolution in targets:

                def timed(image: bytes = data, side: int = resolution) -> list[float]:
                    times = []
                    for _ in range(_DECODE_RUNS):
                        time.sleep(PAUSE_S)
                        started = clock()
                        to_input(image, preprocessing, side)
                        times.append(clock() - started)
                    return times

                times = await execute(timed)
                work = decode_work(header, len(data), preprocessing.least_side(resolution))
                found.append((work, median(times)))
        cost = DecodeCost.fit(found)
        measurements.decode[image_format] = cost
        measurements.decode_ratios += [
            max(0.5, ms / max(cost.at(work), 1e-3)) for work, ms in found
        ]
        logger.info("measured decoding %s: %.2f ms at 500 x 375", image_format, found[2][1])
