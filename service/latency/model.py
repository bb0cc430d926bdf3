"""How long things take on this host: medians, measured at start, corrected by every request.

A prediction is a measured time multiplied by a learnt *pace*, which all points share: when a
neighbour takes half the machine, a point that no request has used lately slows down with the
others, and recovers with them. Runs with nobody else inside and runs under load have a pace each.
How far whole times spread around their predictions is not known here but to `Spread`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from san_core.preprocessing import ImageHeader
from service.images.header import reduction
from service.latency.quantiles import Factor

Shape = tuple[int, str]
"""(resolution, precision): the mode changes the weights, not the time they take."""


@dataclass(frozen=True)
class Assumed:
    """What holds until the first request says otherwise."""

    overhead_ms: float = 0.4
    """Of a request, outside of every named stage: one client, two cores, `benchmarks.overhead`."""
    handover_ms: float = 0.5
    """From the end of one batch to the start of the next while requests wait."""
    decode_ms: float = 1.0
    """To decode an image before there was one: a JPEG of 500 x 375 (`benchmarks.decode`)."""
    cycle: float = 1.25
    """How much longer cycles of a crowded service take than engine and decoders account for: two
    cores that also run the event loop and the client (`benchmarks.tournament --real`)."""
    build_ms: float = 200.0
    """To make a cold point ready, if none was ever built here."""
    own_gain: float = 0.03
    """How far one run moves what is known of its point alone: slower than the shared pace."""
    least_own: float = 0.7
    """No point counts as faster than this part of its measured time: medians of a quiet host."""
    drift: float = 1.5
    """A pace beyond this, or below its inverse, is worth a warning."""
    resize_ms: float = 0.2
    """To bring one decoded image to a resolution other than it was decoded for, at dispatch: 500 x
    375 pixels to 64 to 224 px take 0.1 to 0.2 ms (`benchmarks.decode`)."""


ASSUMED = Assumed()


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
def _up_to(curve: Curve, most: int) -> tuple[float, ...]:
    """The times of batches of 1, 2, … images."""
    return tuple(map(curve.at, range(1, most + 1)))


_ORDINARY_MEGAPIXELS = 2.5
"""Larger JPEGs have a thread of their own, which yields to everything else."""


@dataclass(frozen=True)
class DecodeWork:
    """What decoding one image involves: the regressors of its cost."""

    format: str
    megabytes: float
    source_megapixels: float
    decoded_megapixels: float

    @property
    def features(self) -> tuple[float, float, float, float]:
        """In the order of `DecodeCost`."""
        return (1.0, self.megabytes, self.source_megapixels, self.decoded_megapixels)

    @property
    def bucket(self) -> tuple[str, int]:
        """Images that are alike for the purpose of correction."""
        return _bucket(self.format, self.source_megapixels)


def _bucket(image_format: str, megapixels: float) -> tuple[str, int]:
    """Bounded in number."""
    return (image_format, min(8, max(-4, round(math.log2(max(megapixels, 1e-3))))))


def decode_work(header: ImageHeader, size: int, at_least: int) -> DecodeWork:
    """Describe the work for `size` bytes that must keep `at_least` pixels on the shorter side."""
    shorter = min(header.width, header.height) if header.format == "JPEG" else 0
    factor = reduction(shorter, at_least)
    source = header.width * header.height / 1e6
    return DecodeWork(header.format, size / 1e6, source, source / factor**2)


@dataclass(frozen=True, slots=True)
class DecodeTimes:
    """What decoding one image takes at every scale that it can be decoded at."""

    shorter: int
    """The shorter side of what can be made smaller while it is decoded; 0 for all other images."""
    fixed_ms: float
    whole_ms: float
    """What its pixels take on top at full scale."""

    def at(self, at_least: int) -> float:
        """The time if so many pixels of the shorter side must be kept."""
        return self.fixed_ms + self.whole_ms / reduction(self.shorter, at_least) ** 2


@dataclass
class DecodeCost:
    """ms = base + per_megabyte * MB + per_source * Mpx + per_decoded * decoded Mpx."""

    coefficients: tuple[float, float, float, float] = (0.4, 6.0, 1.0, 8.0)

    def at(self, work: DecodeWork) -> float:
        """The median cost of some work."""
        base, per_megabyte, per_source, per_decoded = self.coefficients
        return (
            base
            + per_megabyte * work.megabytes
            + per_source * work.source_megapixels
            + per_decoded * work.decoded_megapixels
        )

    def times(self, header: ImageHeader, size: int, factor: float = 1.0) -> DecodeTimes:
        """The median costs of an image of `size` bytes, times a factor."""
        base, per_megabyte, per_source, per_decoded = self.coefficients
        source = header.width * header.height / 1e6
        return DecodeTimes(
            min(header.width, header.height) if header.format == "JPEG" else 0,
            factor * (base + per_megabyte * size / 1e6 + per_source * source),
            factor * per_decoded * source,
        )

    @classmethod
    def fit(cls, measured: Sequence[tuple[DecodeWork, float]]) -> DecodeCost:
        """Least squares with coefficients that are not negative (coordinate descent).

        Relative errors are what matters: each equation is divided by its time.
        """
        rows = [([f / ms for f in work.features], 1.0) for work, ms in measured if ms > 0]
        weights = list(cls().coefficients)
        for _ in range(500):
            for j in range(len(weights)):
                top = bottom = 0.0
                for row, target in rows:
                    others = (
                        sum(w * x for w, x in zip(weights, row, strict=True)) - weights[j] * row[j]
                    )
                    top += row[j] * (target - others)
                    bottom += row[j] * row[j]
                if bottom > 0:
                    weights[j] = max(0.0, top / bottom)
        return cls((weights[0], weights[1], weights[2], weights[3]))


@dataclass
class Measurements:
    """What was measured on this host: enough to restart without measuring again."""

    curves: dict[Shape, Curve] = field(default_factory=dict)
    decode: dict[str, DecodeCost] = field(default_factory=dict)
    build_ms: dict[str, float] = field(default_factory=dict)
    """How long it takes to make a network ready, per precision."""

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
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurements:
        """Raises KeyError, TypeError or ValueError if the data are not ours."""
        found = cls(
            decode={str(k): DecodeCost(_four(v)) for k, v in data["decode"].items()},
            build_ms={str(k): _positive(v) for k, v in data["build_ms"].items()},
        )
        for entry in data["forward"]:
            shape = (int(entry["resolution"]), str(entry["precision"]))
            sizes = tuple(int(n) for n in entry["sizes"])
            times = tuple(_positive(ms) for ms in entry["ms"])
            if not sizes or len(sizes) != len(times) or any(a >= b for a, b in pairwise(sizes)):
                raise ValueError("a curve whose sizes and times do not go together")
            found.curves[shape] = Curve(sizes, times)
        if not found.curves:
            raise ValueError("no curve at all")
        return found


def _positive(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError("a time that is not positive")
    return number


def _four(values: Sequence[Any]) -> tuple[float, float, float, float]:
    a, b, c, d = (float(v) for v in values)
    if not all(math.isfinite(v) and v >= 0 for v in (a, b, c, d)):
        raise ValueError("a decode cost that is negative")
    return a, b, c, d


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


class LatencyModel:
    """Predicts the median of every part of a request's time."""

    def __init__(self, measurements: Measurements) -> None:
        self.measurements = measurements
        self._alone = Factor()
        self._busy = Factor()
        self._own: dict[Shape, Factor] = {}
        self._decode: dict[tuple[str, int], Factor] = {}
        self._busy_decode = Factor()
        self._overhead = {True: Factor(ASSUMED.overhead_ms), False: Factor(ASSUMED.overhead_ms)}
        """Alone, and under load."""
        self._handover = Factor(ASSUMED.handover_ms)
        self._build: dict[str, float] = dict(measurements.build_ms)
        self._estimates: dict[Shape, Curve] = {}

    def curve(self, shape: Shape) -> Curve:
        """The base times of a shape; scaled by pixel count from its neighbour if never measured."""
        known = self.measurements.curves.get(shape) or self._estimates.get(shape)
        if known is None:
            if len(self._estimates) > 256:
                self._estimates.clear()
            known = self._estimates[shape] = self._estimate(shape)
        return known

    def update(self, curves: Mapping[Shape, Curve]) -> None:
        """Take over newly measured times."""
        self.measurements.curves.update(curves)
        self._estimates.clear()
        # What was learnt was relative to the old ones.
        self._own.clear()
        self._alone, self._busy = Factor(), Factor()

    def _estimate(self, shape: Shape) -> Curve:
        return interpolated(self.measurements.curves, shape)

    def base_ms(self, shape: Shape, batch: int) -> float:
        """A run's time as measured and learnt for this shape, at pace 1."""
        return self.curve(shape).at(batch) * self._own_factor(shape)

    def bases_ms(self, shape: Shape, most: int) -> list[float]:
        """The same for batches of 1, 2, … images."""
        factor = self._own_factor(shape)
        return [factor * ms for ms in _up_to(self.curve(shape), most)]

    def _own_factor(self, shape: Shape) -> float:
        own = self._own.get(shape)
        return 1.0 if own is None else own.value

    def forward_ms(self, shape: Shape, batch: int = 1) -> float:
        """A run's time with nobody else inside."""
        return self.base_ms(shape, batch) * self._alone.value

    def decode_ms(self, work: DecodeWork) -> float:
        """The time decoding takes with nobody else inside."""
        factor = self._decode.get(work.bucket)
        return self._decode_cost(work.format).at(work) * (1.0 if factor is None else factor.value)

    def decode_times(self, header: ImageHeader, size: int) -> DecodeTimes:
        """The same for an image of `size` bytes at every scale."""
        factor = self._decode.get(_bucket(header.format, header.width * header.height / 1e6))
        cost = self._decode_cost(header.format)
        return cost.times(header, size, 1.0 if factor is None else factor.value)

    @property
    def decode_pace(self) -> float:
        """How much longer decoding takes under load."""
        return self._busy_decode.value

    def build_ms(self, precision: str) -> float:
        """How long it takes until a cold point's weights are ready."""
        return self._build.get(precision, max(self._build.values(), default=ASSUMED.build_ms))

    @property
    def busy_pace(self) -> float:
        """How much longer runs take under load than measured."""
        return self._busy.value

    def overhead_ms(self, *, alone: bool = True) -> float:
        """What a request takes outside of every named stage, from the decision to its answer."""
        return self._overhead[alone].value

    @property
    def handover_ms(self) -> float:
        """From the end of one batch to the start of the next while requests wait."""
        return self._handover.value

    @property
    def drift(self) -> float:
        """Recent times over what was measured at start: 1 means nothing changed."""
        return self._alone.value

    @property
    def has_drifted(self) -> bool:
        """Whether this host is no longer what it was when it was measured."""
        return not 1 / ASSUMED.drift <= self.drift <= ASSUMED.drift

    def observe_forward(
        self, shape: Shape, batch: int, took_ms: float, *, alone: bool, beside_ms: float = 0.0
    ) -> None:
        """Learn from a run; `beside_ms` is what decoding takes from the same cores meanwhile."""
        pace = self._alone if alone else self._busy
        pace.learn(took_ms / (self.base_ms(shape, batch) + beside_ms))
        if alone:
            self._busy.fade(pace.value)
            self._handover.fade(ASSUMED.handover_ms)
        own = self._own.get(shape)
        if own is None:
            own = self._own[shape] = Factor(gain=ASSUMED.own_gain)
        rest = took_ms / pace.value - beside_ms  # of a small resolution little is left, or nothing
        own.learn(max(rest / self.curve(shape).at(batch), ASSUMED.least_own))

    def observe_decode(self, work: DecodeWork, took_ms: float, *, alone: bool) -> None:
        """Learn from an image that was decoded: about its kind, and about no other.

        How much load slows decoding is learnt from ordinary photographs only. Whatever else is
        decoded takes its time elsewhere, and a client could choose it.
        """
        if not alone:
            if work.format == "JPEG" and work.source_megapixels <= _ORDINARY_MEGAPIXELS:
                self._busy_decode.learn(took_ms / max(self.decode_ms(work), 0.01))
            return
        self._busy_decode.fade(1.0)
        base = self._decode_cost(work.format).at(work)
        if base > 0:
            self._decode.setdefault(work.bucket, Factor()).learn(took_ms / base)

    def observe_build(self, precision: str, took_ms: float) -> None:
        """Learn from a network that was made ready: quickly upwards, slowly downwards."""
        known = self._build.get(precision, took_ms)
        share = 0.5 if took_ms > known else 0.1
        self._build[precision] = known + share * (took_ms - known)

    def observe_overhead(self, took_ms: float, *, alone: bool = True) -> None:
        """Learn what is left when the named stages are taken away."""
        self._overhead[alone].learn(max(took_ms, 0.05))
        if alone:
            self._overhead[False].fade(self._overhead[True].value)

    def observe_handover(self, took_ms: float) -> None:
        """Learn from two batches that followed each other while requests waited."""
        self._handover.learn(max(took_ms, 0.01))

    def _decode_cost(self, image_format: str) -> DecodeCost:
        costs = self.measurements.decode
        return costs.get(image_format) or costs.get("PNG") or DecodeCost()
