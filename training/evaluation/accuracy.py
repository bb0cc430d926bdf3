"""Counting hits, and how far the count may be from the truth."""

import math
from dataclasses import dataclass

from torch import Tensor

_Z = 1.959963984540054
"""95 % of a normal distribution lie within this many standard deviations."""


def wilson(hits: int, n: int, z: float = _Z) -> tuple[float, float]:
    """Return Wilson's score interval of a proportion; honest near 0 and 1 and for few images."""
    if n == 0:
        return 0.0, 1.0
    share = hits / n
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    total = 1 + z * z / n
    return max(0.0, (centre - half) / total), min(1.0, (centre + half) / total)


CALIBRATION_BINS = 15
"""As in Guo et al., "On Calibration of Modern Neural Networks"."""


def calibration_error(bins: Tensor) -> float:
    """Return the expected calibration error from bins [b, 3]: images, sum of scores, hits.

    The mean distance between score and share of hits, each bin by its images (Naeini et al., 2015).
    """
    _, scores, hits = bins.double().unbind(1)
    return float((scores - hits).abs().sum() / bins[:, 0].double().sum().clamp(min=1.0))


@dataclass(frozen=True)
class Score:
    """How many of n images were right at first, and among the first five, guesses."""

    n: int
    hits1: int
    hits5: int
    calibration_error: float | None = None
    """Expected calibration error of the scores: how far a score is from the share that is right."""

    @property
    def top1(self) -> float:
        """Share of images whose first guess is right."""
        return self.hits1 / max(1, self.n)

    @property
    def top5(self) -> float:
        """Share of images with the right class among the first five guesses."""
        return self.hits5 / max(1, self.n)

    @property
    def interval1(self) -> tuple[float, float]:
        """95 % interval of top1."""
        return wilson(self.hits1, self.n)

    @property
    def interval5(self) -> tuple[float, float]:
        """95 % interval of top5."""
        return wilson(self.hits5, self.n)
