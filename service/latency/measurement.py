"""Taking this host's times: a few runs per point, in rounds, so that noise falls on all alike.

What counts is the lower quartile of a point's runs: what is above it is mostly others' doing.
Rounds that differ show that somebody else used the machine; the times are then taken again. On a
machine that is never quiet, the shortest of several measurements count in the end.
"""

from __future__ import annotations

import functools
import io
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from statistics import median
from typing import NamedTuple

import numpy as np
from PIL import Image

from san_core.preprocessing import ImageHeader, Preprocessing
from service.engines.base import RunnableNetwork
from service.images.decoder import to_input
from service.latency.curves import Curve, Measurements, Shape
from service.latency.decode_cost import DecodeCost, DecodeWork, decode_work
from service.latency.quantiles import quantile
from service.runtime.clock import Clock

logger = logging.getLogger(__name__)

PAUSE_S = 0.003
"""Before what is timed alone: a request that comes by itself finds caches cold, threads asleep."""
_DECODE_SIZES = ((320, 240), (500, 375), (1600, 1200))
_DECODE_RUNS = 3
_BASE = 0.25
"""The quantile that counts as a point's own time."""
_NOISY = 1.3
"""How much slower than the fastest round the slowest may be; two rounds on an idle host of two
cores differ by a tenth at most."""

_FASTER = 0.9
"""Part of the shortest time so far that is news; rounds on an idle host differ by as much."""
_AGREED = 3
"""After so many measurements in a row without news the shortest times are the host's own."""

Execute = Callable[[Callable[[], list[float]]], Awaitable[list[float]]]
"""Runs a function on the thread that does such work in service: what is timed is what will be."""


class Effort(NamedTuple):
    """How often a network runs: in so many rounds, so many times each; fewer for batches."""

    rounds: int
    alone: int
    together: int


AT_START = Effort(rounds=3, alone=6, together=2)
BEHIND_REQUESTS = Effort(rounds=9, alone=1, together=1)
"""One run at a time: a request that comes waits for no more than that."""


class Taken(NamedTuple):
    """What was measured."""

    curves: dict[Shape, Curve]
    noise: float
    """By how much the rounds differed: 1 is not at all."""

    @property
    def is_noisy(self) -> bool:
        """Whether somebody else used the machine meanwhile."""
        return self.noise > _NOISY


@dataclass
class Least:
    """The shortest times of a point, on a machine that others use whenever it is measured."""

    curve: Curve
    agreed: int = 0
    """Measurements in a row that found nothing shorter."""

    def add(self, curve: Curve) -> None:
        """Take in what was measured next."""
        pairs = list(zip(curve.ms, self.curve.ms, strict=True))
        self.agreed = 0 if any(new < _FASTER * old for new, old in pairs) else self.agreed + 1
        self.curve = Curve(curve.sizes, tuple(map(min, pairs)))

    @property
    def is_settled(self) -> bool:
        """Whether nothing shorter is to be expected."""
        return self.agreed >= _AGREED


def time_runs(network: RunnableNetwork, batch: int, clock: Clock, runs: int) -> list[float]:
    """Time runs of one batch size."""
    side = network.point.resolution
    images = np.random.default_rng(0).integers(0, 256, (batch, side, side, 3), dtype=np.uint8)
    times = []
    for _ in range(runs):
        if batch == 1:
            time.sleep(PAUSE_S)
        started = clock()
        network.run(images)
        times.append(clock() - started)
    return times


def in_steps(curve: Curve) -> Curve:
    """The curve of an engine that pads: one image more than a size costs what the next costs."""
    points = {curve.sizes[0]: curve.ms[0]}
    for before, size, ms in zip(curve.sizes, curve.sizes[1:], curve.ms[1:], strict=False):
        points |= {before + 1: ms, size: ms}
    return Curve(tuple(points), tuple(points.values()))


async def measure_forward(
    networks: Mapping[Shape, RunnableNetwork],
    sizes: Sequence[int],
    execute: Execute,
    clock: Clock,
    effort: Effort = AT_START,
) -> Taken:
    """Time networks that are ready, for batches of each of `sizes`."""
    times: dict[tuple[Shape, int], list[list[float]]] = {
        (shape, n): [] for shape in networks for n in sizes
    }
    for _ in range(effort.rounds):
        for (shape, n), rounds in times.items():
            runs = effort.alone if n == 1 else effort.together
            timed = functools.partial(time_runs, networks[shape], n, clock, runs)
            rounds.append(await execute(timed))
    noise = _noise([times[shape, sizes[0]] for shape in networks])
    base = min if noise > _NOISY else _base  # the shortest is the least disturbed
    found = {}
    for shape in networks:
        of_sizes = (base(list(chain.from_iterable(times[shape, n]))) for n in sizes)
        found[shape] = Curve(tuple(sizes), tuple(accumulate(of_sizes, max)))
    return Taken(found, noise)


def _base(times: list[float]) -> float:
    return quantile(sorted(times), _BASE)


def _noise(of_shapes: Sequence[Sequence[list[float]]]) -> float:
    """The slowest third of the rounds over the fastest, for the shape in the middle."""
    ratios = []
    for rounds in of_shapes:
        paces = sorted(map(_base, rounds))
        third = max(1, len(paces) // 3)
        ratios.append(median(paces[-third:]) / max(median(paces[:third]), 1e-6))
    return median(ratios)


def monotone(curves: Mapping[Shape, Curve]) -> dict[Shape, Curve]:
    """A smaller input is never slower, whatever the noise said: at most the next larger one."""
    limits: dict[str, Curve] = {}
    found = {}
    for shape in sorted(curves, reverse=True):
        curve, limit = curves[shape], limits.get(shape[1])
        if limit is not None:
            times = (min(ms, limit.at(n)) for n, ms in zip(curve.sizes, curve.ms, strict=True))
            curve = Curve(curve.sizes, tuple(times))
        found[shape] = limits[shape[1]] = curve
    return found


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
    image_format: str,
) -> DecodeCost:
    """Fit the cost of decoding a format for the smallest and the largest resolution."""
    targets = sorted({min(resolutions), max(resolutions)})
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
            found.append((work, _base(times)))
    logger.info("measured decoding %s: %.2f ms at 500 x 375", image_format, found[2][1])
    return DecodeCost.fit(found)


def missing(measurements: Measurements, shapes: Sequence[Shape], largest: int) -> list[Shape]:
    """The shapes whose batches up to the largest were not measured yet."""
    curves = measurements.curves
    return [s for s in shapes if s not in curves or curves[s].sizes[-1] < largest]
