"""The operating points of a bundle: which of them are worth measuring, and how good each one is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from san_core.bundle import Accuracy, Manifest
from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from san_core.resolution import Provenance, provenance


@dataclass(frozen=True, slots=True)
class Listing:
    """One operating point and what is known of its accuracy."""

    point: OperatingPoint
    rank: float
    """What the policy compares: the accuracy, or a stand-in where none was measured."""
    accuracy: float | None
    measured: Accuracy | None = None
    shape: tuple[int, str] = field(init=False)
    """What its latency depends on."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", (self.point.resolution, self.point.precision))


class Catalogue:
    """All points of a bundle that an engine can run."""

    def __init__(self, manifest: Manifest, precisions: Sequence[str]) -> None:
        self._trained = manifest.network.resolutions
        self._calibrated = frozenset(manifest.calibrated)
        self.listings = tuple(_measured(manifest, precisions) or _unmeasured(manifest))
        self.resolutions = frozenset(listing.point.resolution for listing in self.listings)
        self._by_point = {listing.point: listing for listing in self.listings}
        self.find = lru_cache(maxsize=256)(self._find)
        """The listings that a pin on a resolution, a mode or both leaves."""
        self.best = max(self.listings, key=lambda listing: listing.rank)

    def worth_measuring(self) -> tuple[Listing, ...]:
        """The points that can be on the frontier: a larger input is never faster.

        Per precision, smallest first; a point no better than a smaller one is left out.
        """
        kept: list[Listing] = []
        best: dict[str, float] = {}
        for listing in sorted(self.listings, key=lambda x: (x.point.resolution, -x.rank)):
            precision = listing.point.precision
            if listing.rank > best.get(precision, float("-inf")):
                best[precision] = listing.rank
                kept.append(listing)
        return tuple(kept)

    def _find(self, resolution: int | None, mode: Mode | None) -> tuple[Listing, ...]:
        """A resolution that was never evaluated gets an estimate.

        Of several modes the best one: they cost the same, and on a trained resolution they are one
        network, which must not be built three times.
        """
        found: dict[tuple[int, str], Listing] = {}
        for listing in self.listings:
            point = listing.point
            if resolution in (None, point.resolution) and mode in (None, point.mode):
                known = found.setdefault(listing.shape, listing)
                if listing.rank > known.rank:
                    found[listing.shape] = listing
        if found:
            return tuple(found.values())
        if resolution is None:
            # No point of that mode was evaluated; on trained resolutions all modes are one network.
            return tuple(self.estimate(r, mode or Mode.PROXY) for r in self._trained)
        return (self.estimate(resolution, mode or self.default_mode(resolution)),)

    def default_mode(self, resolution: int) -> Mode:
        """The mode for a resolution nobody evaluated."""
        if resolution in self._calibrated:
            return Mode.IDEAL
        inside = provenance(resolution, self._trained) is Provenance.INTERPOLATED
        return Mode.DATA_FREE if inside else Mode.PROXY

    def estimate(self, resolution: int, mode: Mode) -> Listing:
        """Between the nearest evaluated resolutions, on a straight line."""
        point = OperatingPoint(resolution, mode)
        known = self._by_point.get(point)
        if known is not None:
            return known
        same = [x for x in self.listings if x.point.mode is mode] or list(self.listings)
        below = max(
            (x for x in same if x.point.resolution <= resolution), key=_by_size, default=None
        )
        above = min(
            (x for x in same if x.point.resolution >= resolution), key=_by_size, default=None
        )
        if below is None or above is None:
            edge = below or above
            assert edge is not None
            return Listing(point, edge.rank, edge.accuracy)
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
