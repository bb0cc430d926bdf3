"""How a main network for any resolution is put together from what was trained (section 3.3)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from san_core.resolution import nearest, neighbours


class Mode(StrEnum):
    """The three ways of inference."""

    PROXY = "proxy"
    IDEAL = "ideal"
    DATA_FREE = "data_free"

    __hash__ = str.__hash__  # they are equal as strings, and an enum's own is five times as slow


@dataclass(frozen=True)
class Ingredients:
    """What a (resolution, mode) takes: whose encoding, whose batch norm, whose statistics."""

    encoding: int
    """Resolution whose scale encoding generates the kernels."""
    lower: int
    """Trained resolution whose private batch norm is used, …"""
    upper: int
    """… blended with that of this one …"""
    blend: float
    """… in this share (0: all `lower`)."""
    statistics: int | None = None
    """Resolution whose calibrated statistics replace the private ones."""


def ingredients(
    resolution: int, mode: Mode, trained: Sequence[int], calibrated: Collection[int] = ()
) -> Ingredients:
    """Resolve a (resolution, mode) against the trained resolutions.

    Outside the trained range `data_free` holds the batch norm of the edge: extrapolated variances
    could turn negative. `ideal` without calibrated statistics at T keeps the private ones (the
    paper's Table 2, left).
    """
    near = nearest(resolution, trained)
    if mode is Mode.PROXY or resolution == near:  # Eq. 6; all modes agree where S(T) = T
        return Ingredients(near, near, near, 0.0)
    if mode is Mode.IDEAL:  # Eq. 5
        statistics = resolution if resolution in calibrated else None
        return Ingredients(resolution, near, near, 0.0, statistics)
    floor, ceil = neighbours(resolution, trained)  # supplement, data-free ideal inference
    blend = (resolution - floor) / (ceil - floor) if ceil != floor else 0.0
    return Ingredients(resolution, floor, ceil, blend)
