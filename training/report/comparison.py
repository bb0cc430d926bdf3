"""What the paper claims, put to the numbers of a reproduction. Pure: scores in, findings out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from san_core.resolution import nearest
from training.evaluation.accuracy import Score
from training.evaluation.evaluate import Cells

_Z = 1.959963984540054
"""The normal distribution has 95 % within so many standard deviations."""


@dataclass(frozen=True)
class Difference:
    """One accuracy minus another, with its 95 % interval."""

    value: float
    half_width: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return abs(self.value) > self.half_width

    def __str__(self) -> str:
        return f"{100 * self.value:+.1f} ± {100 * self.half_width:.1f}"


def difference(one: Score, other: Score) -> Difference:
    """Subtract two accuracies as if measured on different images.

    They are measured on the same ones, which makes the true interval narrower.
    """
    variance = sum(s.top1 * (1 - s.top1) / max(1, s.n) for s in (one, other))
    return Difference(one.top1 - other.top1, _Z * math.sqrt(variance))


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, and what came out here."""

    claim: str
    outcome: str
    agrees: bool


def _listed(sides: Sequence[int]) -> str:
    return ", ".join(map(str, sides))


def diagonal(san: Cells, baselines: Cells, trained: Sequence[int]) -> Finding:
    """Compare at the trained resolutions."""
    gaps = {s: difference(san[s, s], baselines[s, s]) for s in trained}
    worse = [s for s, gap in gaps.items() if gap.value < 0]
    clearly = [s for s, gap in gaps.items() if gap.value > 0 and gap.is_clear]
    text = "; ".join(f"{s}: {gap}" for s, gap in gaps.items())
    outcome = f"SAN minus baseline: {text}. " + (
        f"Below the baseline at {_listed(worse)}." if worse else "Nowhere below the baseline."
    )
    outcome += f" Clear at {_listed(clearly)}." if clearly else " No single gap is clear."
    claim = "At every trained resolution SAN is at or above the network trained for it (Table 1)."
    return Finding(claim, outcome, not worse)


def off_diagonal(
    san: Cells, baselines: Cells, trained: Sequence[int], tests: Sequence[int]
) -> Finding:
    """Compare where a row meets a resolution far from its own."""
    far = [(s, t) for s in trained for t in tests if max(s / t, t / s) >= 1.5]
    gaps = [san[cell].top1 - baselines[cell].top1 for cell in far]
    mean = sum(gaps) / max(1, len(gaps))
    better = sum(gap > 0 for gap in gaps)
    claim = "Far from its own resolution a row of SAN loses much less than a baseline (Table 1)."
    outcome = (
        f"Where row and test differ by half or more, SAN is better in {better} of {len(gaps)} "
        f"cells, by {100 * mean:+.1f} points on average."
    )
    return Finding(claim, outcome, bool(gaps) and mean > 0 and better > len(gaps) / 2)


def distillation(san: Cells, without: Cells, trained: Sequence[int]) -> Finding:
    """Compare with and without scale distillation, by resolution."""
    ordered = sorted(trained, reverse=True)
    gaps = [difference(san[s, s], without[s, s]) for s in ordered]
    text = "; ".join(f"{s}: {gap}" for s, gap in zip(ordered, gaps, strict=True))
    half = len(ordered) // 2
    large = sum(g.value for g in gaps[:half]) / max(1, half)
    small = sum(g.value for g in gaps[-half:]) / max(1, half)
    mean = sum(g.value for g in gaps) / len(gaps)
    claim = "Scale distillation helps, and most at the small end (Table 3, left)."
    outcome = f"With minus without: {text}; {100 * mean:+.1f} on average."
    return Finding(claim, outcome, mean > 0 and small > large)


def shared_batch_norm(private: Cells, shared: Cells, trained: Sequence[int]) -> Finding:
    """Compare private with shared batch norm, both without distillation."""
    gaps = {s: difference(shared[s, s], private[s, s]) for s in trained}
    text = "; ".join(f"{s}: {gap}" for s, gap in gaps.items())
    worst, best = min(gaps.values(), key=_value), max(gaps.values(), key=_value)
    claim = "With shared batch norm accuracy collapses, least in the middle (Table 3, right)."
    collapsed = worst.value < -0.1 and best.value < 0
    return Finding(claim, f"Shared minus private: {text}.", collapsed)


def _value(gap: Difference) -> float:
    return gap.value


def modes(
    served: Mapping[tuple[int, str], Score], trained: Sequence[int], within: float = 0.02
) -> Finding:
    """Compare the modes of inference at interpolated resolutions."""
    between = sorted(
        {t for t, _ in served if min(trained) < t < max(trained) and t not in trained}, reverse=True
    )
    widest, parts = 0.0, []
    for test in between:
        found = {m: served[test, m].top1 for m in ("proxy", "ideal", "data_free")}
        widest = max(widest, max(found.values()) - min(found.values()))
        shown = ", ".join(f"{mode} {100 * value:.1f}" for mode, value in found.items())
        parts.append(f"{test} (S(T) = {nearest(test, trained)}): {shown}")
    claim = "Proxy, calibrated ideal and data-free inference are about the same (Tables 2 and 6)."
    outcome = f"{'; '.join(parts)}. The widest gap is {100 * widest:.1f} points."
    return Finding(claim, outcome, bool(between) and widest <= within)
