"""Resolutions: the side T of the square input, and its place among the trained ones."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from enum import StrEnum

from san_core.errors import ResolutionError

MIN_RESOLUTION = 32
"""A network that halves its maps five times, as most do, has one pixel left of it."""
MAX_RESOLUTION = 1024
"""Bounds what one request can cost; the service's own limit, `max_resolution`, is lower."""


class Provenance(StrEnum):
    """Where a resolution lies with respect to the trained ones."""

    TRAINED = "trained"
    INTERPOLATED = "interpolated"
    EXTRAPOLATED = "extrapolated"


def check_resolution(resolution: int) -> int:
    """Return `resolution` if a network can take it, or raise ResolutionError."""
    if isinstance(resolution, bool) or not isinstance(resolution, int):
        raise ResolutionError(f"A resolution is a whole number of pixels, not {resolution!r}.")
    if not MIN_RESOLUTION <= resolution <= MAX_RESOLUTION:
        raise ResolutionError(
            f"Resolution {resolution} is outside {MIN_RESOLUTION} to {MAX_RESOLUTION} pixels."
        )
    return resolution


def check_trained(resolutions: Sequence[int]) -> tuple[int, ...]:
    """Return the trained resolutions largest first, or raise ResolutionError."""
    checked = sorted({check_resolution(r) for r in resolutions}, reverse=True)
    if not checked:
        raise ResolutionError("At least one trained resolution is needed.")
    if len(checked) != len(resolutions):
        raise ResolutionError(f"A trained resolution stands twice in {list(resolutions)}.")
    return tuple(checked)


def nearest(resolution: int, trained: Sequence[int]) -> int:
    """S(T) of Eq. 5; of two equally near the smaller, as in the paper's Table 1 (208 → 192)."""
    return min(trained, key=lambda s: (abs(s - resolution), s))


def neighbours(resolution: int, trained: Sequence[int]) -> tuple[int, int]:
    """S_floor(T) and S_ceil(T) of the supplement; both the edge outside the trained range."""
    ascending = sorted(trained)
    after = bisect_right(ascending, resolution)
    floor = ascending[max(after - 1, 0)]
    if floor == resolution or after == len(ascending):
        return floor, floor
    return (floor, ascending[after]) if after else (ascending[0], ascending[0])


def interpolated(table: Sequence[tuple[int, float]], resolution: int) -> float:
    """Look a resolution up in (resolution, value) pairs, smallest first: linear in between.

    Outside the table the value at its edge holds.
    """
    after = bisect_right(table, (resolution, math.inf))
    if after in (0, len(table)):
        return table[max(after - 1, 0)][1]
    (low, lower), (high, upper) = table[after - 1 : after + 1]
    return lower + (upper - lower) * (resolution - low) / (high - low)


def provenance(resolution: int, trained: Sequence[int]) -> Provenance:
    """Tell whether a resolution is trained, between trained ones, or outside their range."""
    if resolution in trained:
        return Provenance.TRAINED
    if min(trained) < resolution < max(trained):
        return Provenance.INTERPOLATED
    return Provenance.EXTRAPOLATED
