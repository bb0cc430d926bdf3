"""What decoding an image costs, from its header: linear in its bytes and pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from san_core.preprocessing import ImageHeader
from service.images.header import reduction


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
        return bucket(self.format, self.source_megapixels)


def bucket(image_format: str, megapixels: float) -> tuple[str, int]:
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
