"""How long things take on this host: measured at start, corrected by every request.

Each prediction is a measured base time multiplied by a quantile of recent *ratios* (observed time
over base time). Ratios are shared: when a neighbour takes half the machine, a point that no request
has used lately slows down with the others, and recovers with them. Samples grow old, and those of a
burst at once: what it slowed down must not be kept out of use, unable to show that it recovered.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from san_core.preprocessing import ImageHeader
from service.images.header import reduction
from service.latency.quantiles import Blend, Memory

Shape = tuple[int, str]
"""(resolution, precision): the mode changes the weights, not the time they take."""

_DRIFT_SAMPLES = 64
_DRIFT_FACTOR = 1.5
_MEMORY_MS = 1000.0
"""After this long without a time taken under load, none of them counts any more."""


@dataclass(frozen=True)
class Curve:
    """Median forward time over the batch size: straight lines between measured sizes."""

    sizes: tuple[int, ...]
    ms: tuple[float, ...]

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
        """Images that are alike for the purpose of correction; bounded in number."""
        return (self.format, min(8, max(-4, round(math.log2(max(self.source_megapixels, 1e-3))))))


def decode_scale(header: ImageHeader, at_least: int) -> int:
    """By how much an image is made smaller while it is decoded, which only a JPEG can be."""
    if header.format != "JPEG":
        return 1
    return reduction(min(header.width, header.height), at_least)


def decode_work(header: ImageHeader, size: int, at_least: int) -> DecodeWork:
    """Describe the work for `size` bytes that must keep `at_least` pixels on the shorter side."""
    factor = decode_scale(header, at_least)
    source = header.width * header.height / 1e6
    return DecodeWork(header.format, size / 1e6, source, source / factor**2)


@dataclass
class DecodeCost:
    """ms = base + per_megabyte * MB + per_source * Mpx + per_decoded * decoded Mpx."""

    coefficients: tuple[float, float, float, float] = (0.4, 6.0, 1.0, 8.0)

    def at(self, work: DecodeWork) -> float:
        """The median cost of some work."""
        return sum(c * f for c, f in zip(self.coefficients, work.features, strict=True))

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
    ratios: dict[Shape, list[float]] = field(default_factory=dict)
    """Observed over median at start, per shape: the spread behind the first p99."""
    decode: dict[str, DecodeCost] = field(default_factory=dict)
    decode_ratios: list[float] = field(default_factory=list)
    build_ms: dict[str, float] = field(default_factory=dict)
    """How long it takes to make a network ready, per precision."""
    standin_ms: dict[int, float] = field(default_factory=dict)
    """How long the stand-in engine takes from nothing to an answer, per resolution."""

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "forward": [
                {
                    "resolution": resolution,
                    "precision": precision,
                    "sizes": curve.sizes,
                    "ms": curve.ms,
                    "ratios": self.ratios.get((resolution, precision), []),
                }
                for (resolution, precision), curve in self.curves.items()
            ],
            "decode": {name: cost.coefficients for name, cost in self.decode.items()},
            "decode_ratios": self.decode_ratios,
            "build_ms": self.build_ms,
            "standin_ms": {str(k): v for k, v in self.standin_ms.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurements:
        """Raises KeyError, TypeError or ValueError if the data are not ours."""
        found = cls(
            decode={str(k): DecodeCost(_four(v)) for k, v in data["decode"].items()},
            decode_ratios=[_positive(r) for r in data["decode_ratios"]],
            build_ms={str(k): _positive(v) for k, v in data["build_ms"].items()},
            standin_ms={int(k): _positive(v) for k, v in data["standin_ms"].items()},
        )
        for entry in data["forward"]:
            shape = (int(entry["resolution"]), str(entry["precision"]))
            sizes = tuple(int(n) for n in entry["sizes"])
            times = tuple(_positive(ms) for ms in entry["ms"])
            if not sizes or len(sizes) != len(times) or any(a >= b for a, b in pairwise(sizes)):
                raise ValueError("a curve whose sizes and times do not go together")
            found.curves[shape] = Curve(sizes, times)
            found.ratios[shape] = [_positive(r) for r in entry["ratios"]]
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


class LatencyModel:
    """Predicts every part of a request's time at any quantile.

    `is_loaded(now_ms)` tells whether a time taken now is one of a service under load.
    """

    def __init__(
        self, measurements: Measurements, is_loaded: Callable[[float], bool] = lambda _: False
    ) -> None:
        self.measurements = measurements
        self._is_loaded = is_loaded
        self._loaded_ms = float("-inf")
        self._recent = Memory(size=512, horizon_ms=10_000.0)
        self._forward: dict[Shape, Blend] = {}
        self._decode_recent = Memory()
        self._decode: dict[tuple[str, int], Blend] = {}
        self._build: dict[str, float] = dict(measurements.build_ms)
        self._overhead = Blend(Memory(), prior=[0.4], enough=1)
        self._excess = Blend(Memory(), prior=[0.0])
        self._estimates: dict[Shape, Curve] = {}

    def curve(self, shape: Shape) -> Curve:
        """The base times of a shape; scaled by pixel count from its neighbour if never measured."""
        known = self.measurements.curves.get(shape) or self._estimates.get(shape)
        if known is None:
            if len(self._estimates) > 256:
                self._estimates.clear()
            known = self._estimates[shape] = self._estimate(shape)
        return known

    def _estimate(self, shape: Shape) -> Curve:
        resolution, precision = shape
        curves = self.measurements.curves
        same = [s for s in curves if s[1] == precision] or list(curves)
        near = min(same, key=lambda s: abs(s[0] - resolution))
        factor = (resolution / near[0]) ** 2
        base = curves[near]
        return Curve(base.sizes, tuple(ms * max(factor, 0.5) for ms in base.ms))

    def forward_ms(
        self, shape: Shape, batch: int, q: float, now_ms: float, *, calm: bool = False
    ) -> float:
        """The time a batch takes, at quantile `q`; `calm`: as if there were no load."""
        ratio = self._ratios(shape).at(q, now_ms, calm=calm)
        return self.curve(shape).at(batch) * (1.0 if ratio is None else ratio)

    def decode_ms(self, work: DecodeWork, q: float, now_ms: float, *, calm: bool = False) -> float:
        """The time decoding takes, at quantile `q`; `calm`: as if there were no load."""
        ratio = self._decode_ratios(work).at(q, now_ms, calm=calm)
        return self._decode_cost(work.format).at(work) * (1.5 if ratio is None else ratio)

    def build_ms(self, precision: str) -> float:
        """How long it takes until a cold point's weights are ready."""
        return self._build.get(precision, max(self._build.values(), default=200.0))

    def standin_ms(self, resolution: int) -> float:
        """From nothing to an answer by the stand-in engine; infinite if there is none."""
        known = self.measurements.standin_ms
        if not known:
            return math.inf
        near = min(known, key=lambda r: abs(r - resolution))
        return known[near] * max(1.0, (resolution / near) ** 2)

    def cold_ms(self, shape: Shape, now_ms: float) -> float:
        """What cold weights add to a request: until they are ready, or the stand-in's detour."""
        resolution, precision = shape
        detour = self.standin_ms(resolution) - self.forward_ms(shape, 1, 0.5, now_ms)
        return min(self.build_ms(precision), max(0.0, detour))

    def overhead_ms(self, q: float, now_ms: float, *, calm: bool = False) -> float:
        """What a request costs outside of every named stage; `calm`: as if there were no load."""
        return self._overhead.at(q, now_ms, calm=calm) or 0.0

    def excess_ms(self, q: float, now_ms: float, *, calm: bool = False) -> float:
        """By how much requests take longer than their parts foretell; 0 if they do not.

        Waiting that nobody foresaw, a machine that others use. `calm`: as if there were no load.
        """
        return max(0.0, self._excess.at(q, now_ms, calm=calm) or 0.0)

    def remembers_load(self, now_ms: float) -> bool:
        """Whether times taken under load still count: a prediction may differ from a calm one."""
        return now_ms - self._loaded_ms <= _MEMORY_MS

    def observe_forward(self, shape: Shape, batch: int, took_ms: float, now_ms: float) -> None:
        """Learn from a batch that ran."""
        ratio, loaded = took_ms / self.curve(shape).at(batch), self._under_load(now_ms)
        for memory in (self._ratios(shape).own, self._recent):
            memory.add(now_ms, ratio, loaded=loaded)

    def observe_decode(self, work: DecodeWork, took_ms: float, now_ms: float) -> None:
        """Learn from an image that was decoded."""
        base = self._decode_cost(work.format).at(work)
        if base > 0:
            loaded = self._under_load(now_ms)
            for memory in (self._decode_ratios(work).own, self._decode_recent):
                memory.add(now_ms, took_ms / base, loaded=loaded)

    def observe_build(self, precision: str, took_ms: float) -> None:
        """Learn from a network that was made ready: quickly upwards, slowly downwards."""
        known = self._build.get(precision, took_ms)
        share = 0.5 if took_ms > known else 0.1
        self._build[precision] = known + share * (took_ms - known)

    def observe_overhead(self, took_ms: float, now_ms: float) -> None:
        """Learn what is left when the named stages are taken away."""
        self._overhead.own.add(now_ms, max(took_ms, 0.0), loaded=self._under_load(now_ms))

    def observe_excess(self, took_ms: float, now_ms: float) -> None:
        """Learn by how much a request took longer than its parts foretold, however it ended."""
        self._excess.own.add(now_ms, took_ms, loaded=self._under_load(now_ms))

    def drift(self, now_ms: float) -> float:
        """Median of recent times over what was measured at start: 1 means nothing changed."""
        recent = self._recent.fresh(now_ms)
        return recent[len(recent) // 2] if len(recent) >= _DRIFT_SAMPLES else 1.0

    def has_drifted(self, now_ms: float) -> bool:
        """Whether this host is no longer what it was when it was measured."""
        drift = self.drift(now_ms)
        return drift > _DRIFT_FACTOR or drift < 1 / _DRIFT_FACTOR

    def _under_load(self, now_ms: float) -> bool:
        loaded = self._is_loaded(now_ms)
        if loaded:
            self._loaded_ms = now_ms
        return loaded

    def _ratios(self, shape: Shape) -> Blend:
        found = self._forward.get(shape)
        if found is None:
            prior = self.measurements.ratios.get(shape) or [1.0]
            found = self._forward[shape] = Blend(Memory(), self._recent, prior=prior)
        return found

    def _decode_ratios(self, work: DecodeWork) -> Blend:
        found = self._decode.get(work.bucket)
        if found is None:
            prior = self.measurements.decode_ratios
            found = self._decode[work.bucket] = Blend(Memory(), self._decode_recent, prior=prior)
        return found

    def _decode_cost(self, image_format: str) -> DecodeCost:
        costs = self.measurements.decode
        return costs.get(image_format) or costs.get("PNG") or DecodeCost()
