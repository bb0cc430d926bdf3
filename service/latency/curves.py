"""Times measured on this host: forward times over the batch size, decoding, and building."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from service.latency.decode_cost import DecodeCost

Shape = tuple[int, str]
"""(resolution, precision): the mode changes the weights, not the time they take."""


@dataclass(frozen=True)
class Curve:
    """Median forward time over the batch size: straight lines between measured sizes."""

    sizes: tuple[int, ...]
    ms: tuple[float, ...]

    @property
    def unit_ms(self) -> float:
        """An image's time at the batch size that gets the most done.

        It is taken over longer runs than a single image's, so noise hides less.
        """
        return min(ms / size for size, ms in zip(self.sizes, self.ms, strict=True))

    def at(self, batch: int) -> float:
        """The time of a batch; beyond the largest measured size, proportional to it."""
        if batch <= self.sizes[0]:
            return self.ms[0]
        if batch >= self.sizes[-1]:
            return self.ms[-1] * batch / self.sizes[-1]
        i = bisect_left(self.sizes, batch)
        low, high = self.sizes[i - 1], self.sizes[i]
        share = (batch - low) / (high - low)
        return self.ms[i - 1] + share * (self.ms[i] - self.ms[i - 1])


@lru_cache(maxsize=256)
def up_to(curve: Curve, most: int) -> tuple[float, ...]:
    """The times of batches of 1, 2, … images."""
    return tuple(map(curve.at, range(1, most + 1)))


@dataclass
class Measurements:
    """What was measured on this host: enough to restart without measuring again."""

    curves: dict[Shape, Curve] = field(default_factory=dict)
    decode: dict[str, DecodeCost] = field(default_factory=dict)
    build_ms: dict[str, float] = field(default_factory=dict)
    """How long it takes to make a network ready, per precision."""
    start_ms: list[float] = field(default_factory=list)
    """How long each step of the last start took."""

    def without(self, shapes: Collection[Shape]) -> Measurements:
        """All but some shapes' times."""
        curves = {shape: curve for shape, curve in self.curves.items() if shape not in shapes}
        return replace(self, curves=curves)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "forward": [
                {
                    "resolution": resolution,
                    "precision": precision,
                    "sizes": curve.sizes,
                    "ms": curve.ms,
                }
                for (resolution, precision), curve in self.curves.items()
            ],
            "decode": {name: cost.coefficients for name, cost in self.decode.items()},
            "build_ms": self.build_ms,
            "start_ms": self.start_ms,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurements:
        """Raises KeyError, TypeError or ValueError if the data are not ours."""
        found = cls(
            decode={str(k): DecodeCost(_four(v)) for k, v in data["decode"].items()},
            build_ms={str(k): _positive(v) for k, v in data["build_ms"].items()},
            start_ms=_not_negative(data.get("start_ms", ())),
        )
        for entry in data["forward"]:
            shape = (int(entry["resolution"]), str(entry["precision"]))
            sizes = tuple(int(n) for n in entry["sizes"])
            times = tuple(_positive(ms) for ms in entry["ms"])
            if not sizes or len(sizes) != len(times) or any(a >= b for a, b in pairwise(sizes)):
                raise ValueError("a curve whose sizes and times do not go together")
            found.curves[shape] = Curve(sizes, times)
        return found


def _positive(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError("a time that is not positive")
    return number


def _four(values: Sequence[Any]) -> tuple[float, float, float, float]:
    a, b, c, d = _not_negative(values)
    return a, b, c, d


def _not_negative(values: Sequence[Any]) -> list[float]:
    numbers = [float(v) for v in values]
    if not all(math.isfinite(v) and v >= 0 for v in numbers):
        raise ValueError("a time that is negative")
    return numbers


_OVER_INT8 = 2.0
"""How much longer float takes than int8 where only one of them was measured: 1.8 to 2.5 times on
CPUs with VNNI (`docs/performance.md`)."""


def interpolated(curves: Mapping[Shape, Curve], shape: Shape) -> Curve:
    """The times of a shape that was not measured, from those that were.

    Work grows with the pixels, so times lie on straight lines over them; beyond the ends they are
    in proportion, though half of the nearest is the least.
    """
    resolution, precision = shape
    same = sorted(s for s in curves if s[1] == precision)
    factor = 1.0
    if not same:
        same = sorted(curves)
        factor = _OVER_INT8 if precision == "float" else 1 / _OVER_INT8
    pixels = resolution**2
    below = [s for s in same if s[0] <= resolution]
    above = [s for s in same if s[0] > resolution]
    if below and above:
        low, high = below[-1], above[0]
        share = (pixels - low[0] ** 2) / (high[0] ** 2 - low[0] ** 2)
        sizes = curves[low].sizes
        return Curve(
            sizes,
            tuple(
                factor * ((1 - share) * curves[low].at(n) + share * curves[high].at(n))
                for n in sizes
            ),
        )
    near = below[-1] if below else above[0]
    factor *= max(pixels / near[0] ** 2, 0.5)
    return Curve(curves[near].sizes, tuple(factor * ms for ms in curves[near].ms))
