"""The operating points of a bundle: which of them are worth measuring, and how good each one is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from san_core.bundle import Accuracy, Manifest
from san_core.frontier import OperatingPoint, Precision
from san_core.mode import Mode
from san_core.resolution import Provenance, provenance

_WORTHWHILE = 0.005
"""Half a point of accuracy: less is not worth a network that is built, measured and kept."""


@dataclass(frozen=True, slots=True)
class Listing:
    """One operating point and what is known of its accuracy."""

    point: OperatingPoint
    rank: float
    """What the policy compares: the accuracy, or a stand-in where none was measured."""
    accuracy: float | None
    """Top-1: measured, or between two measured resolutions; None outside of them."""
    measured: Accuracy | None = None
    shape: tuple[int, str] = field(init=False)
    """What its latency depends on."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", (self.point.resolution, self.point.precision))

    @property
    def accuracy_source(self) -> str | None:
        """Where the accuracy comes from: `measured`, `interpolated`, or None if none is claimed."""
        if self.accuracy is None:
            return None
        return "measured" if self.measured is not None else "interpolated"


class Catalogue:
    """All points of a bundle that an engine can run."""

    def __init__(self, manifest: Manifest, precisions: Sequence[str]) -> None:
        self._trained = manifest.network.resolutions
        self._calibrated = frozenset(manifest.calibrated)
        self.precisions = tuple(precisions)
        self.listings = tuple(_measured(manifest, precisions) or _unmeasured(manifest))
        self.resolutions = frozenset(listing.point.resolution for listing in self.listings)
        self._by_point = {listing.point: listing for listing in self.listings}
        self.find = lru_cache(maxsize=256)(self._find)
        """The listings that pins on the resolution, the mode and the precision leave."""
        self.best = max(self.listings, key=lambda listing: listing.rank)

    def worth_building(self) -> tuple[Listing, ...]:
        """The points that can be on the frontier and move it, smallest first.

        A larger input is never faster, and no precision is slower than float: a point no better
        than a faster one is left out, and one that adds less than half a point to the next smaller
        one of its precision, unless it is the best of all.
        """
        kept: list[Listing] = []
        for precision in sorted({x.point.precision for x in self.listings}, reverse=True):
            level = max((x.rank for x in kept), default=float("-inf"))
            for listing in sorted(self.listings, key=lambda x: (x.point.resolution, -x.rank)):
                if listing.point.precision != precision or listing.rank <= level:
                    continue
                little = listing.accuracy is not None and listing.rank < level + _WORTHWHILE
                if little and listing is not self.best:
                    continue
                kept.append(listing)
                level = listing.rank
        return tuple(sorted(kept, key=lambda x: x.shape))

    def essential(self) -> tuple[Listing, ...]:
        """Enough to answer any budget: of the fastest precision the best, a middle, the least."""
        worth = self.worth_building()
        fastest = max(x.point.precision for x in worth)
        same = [x for x in worth if x.point.precision == fastest]
        return tuple(dict.fromkeys((same[-1], same[len(same) // 2], same[0])))

    def _find(
        self,
        resolution: int | None,
        mode: Mode | None,
        precision: Precision | None = None,
    ) -> tuple[Listing, ...]:
        """A resolution that was never evaluated gets an estimate.

        Of several modes the best one: they cost the same, and on a trained resolution they are one
        network, which must not be built three times.
        """
        found: dict[tuple[int, str], Listing] = {}
        for listing in self.listings:
            point = listing.point
            if (
                resolution in (None, point.resolution)
                and mode in (None, point.mode)
                and precision in (None, point.precision)
            ):
                known = found.setdefault(listing.shape, listing)
                if listing.rank > known.rank:
                    found[listing.shape] = listing
        if found:
            return tuple(found.values())
        if resolution is None:
            # No point of that mode was evaluated; on trained resolutions all modes are one network.
            return tuple(
                self.estimate(r, mode or Mode.PROXY, precision or "float") for r in self._trained
            )
        mode = mode or self.default_mode(resolution)
        return (self.estimate(resolution, mode, precision or "float"),)

    def default_mode(self, resolution: int) -> Mode:
        """The mode for a resolution nobody evaluated."""
        if resolution in self._calibrated:
            return Mode.IDEAL
        inside = provenance(resolution, self._trained) is Provenance.INTERPOLATED
        return Mode.DATA_FREE if inside else Mode.PROXY

    def estimate(self, resolution: int, mode: Mode, precision: Precision = "float") -> Listing:
        """Between the nearest evaluated resolutions, on a straight line.

        Outside of them no accuracy is claimed: it falls off in ways that no neighbour tells.
        """
        point = OperatingPoint(resolution, mode, precision)
        known = self._by_point.get(point)
        if known is not None:
            return known
        like = [x for x in self.listings if x.point.precision == precision] or self.listings
        same = [x for x in like if x.point.mode is mode] or like
        below = max(
            (x for x in same if x.point.resolution <= resolution), key=_by_size, default=None
        )
        above = min(
            (x for x in same if x.point.resolution >= resolution), key=_by_size, default=None
        )
        if below is None or above is None:
            edge = below or above
            assert edge is not None
            return Listing(point, edge.rank, None)
        gap = above.point.resolution - below.point.resolution
        share = (resolution - below.point.resolution) / gap if gap else 0.0
        rank = below.rank + share * (above.rank - below.rank)
        return Listing(point, rank, rank if below.accuracy is not None else None)


def _by_size(listing: Listing) -> tuple[int, float]:
    return listing.point.resolution, listing.rank


def _measured(manifest: Manifest, precisions: Sequence[str]) -> list[Listing]:
    """One listing per point; of several data sets the one with the most images."""
    chosen: dict[OperatingPoint, Accuracy] = {}
    for accuracy in manifest.accuracy:
        known = chosen.get(accuracy.point)
        if accuracy.precision in precisions and (known is None or accuracy.n > known.n):
            chosen[accuracy.point] = accuracy
    # Where modes are equal, as on every trained resolution, the simplest goes first.
    simplest = tuple(Mode)
    ordered = sorted(chosen, key=lambda p: (p.resolution, simplest.index(p.mode), p.precision))
    return [Listing(p, chosen[p].top1, chosen[p].top1, chosen[p]) for p in ordered]


def _unmeasured(manifest: Manifest) -> list[Listing]:
    """A bundle without an evaluation: larger is taken to be better, and no accuracy is claimed."""
    return [
        Listing(OperatingPoint(resolution), resolution / 10_000, None)
        for resolution in sorted(manifest.network.resolutions)
    ]
