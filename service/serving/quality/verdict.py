"""Whether a candidate bundle may take over, and whether it must go: pure, from facts to reasons."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt

_CERTAIN = 2.0
"""Standard errors beyond which a difference is not taken for chance."""
_FEW = 20
"""With fewer observations than this nothing is concluded."""


@dataclass(frozen=True)
class Bounds:
    """By how much a candidate may be worse."""

    samples: int = 50
    """Pictures that both bundles must have answered before one may take over."""
    agreement: float = 0.8
    """Share of pictures on which the best points of both bundles agree."""
    accuracy_loss: float = 0.01
    """Of the accuracy expected for the budgets that clients send."""
    slowdown: float = 1.25
    """Time of its best point over that of the serving bundle's."""
    promises: float = 0.97
    """Share of budgets that must be kept while it serves."""
    accuracy_drop: float = 0.05
    """Of the accuracy by feedback, below what was expected of the same answers."""


@dataclass
class Share:
    """A part of a whole."""

    part: float = 0.0
    whole: float = 0.0

    def add(self, hit: float) -> None:
        """Count one."""
        self.part += hit
        self.whole += 1

    @property
    def value(self) -> float | None:
        """The share; None of nothing."""
        return self.part / self.whole if self.whole else None

    def surely_below(self, bound: float) -> bool:
        """Whether a share this low would be rare if the true one were at the bound."""
        if self.whole < _FEW:
            return False
        error = sqrt(bound * (1 - bound) / self.whole)
        return self.part / self.whole < bound - _CERTAIN * error


@dataclass
class Comparison:
    """What is known of a candidate in comparison with the bundle that serves."""

    agreement: Share = field(default_factory=Share)
    expected: Share = field(default_factory=Share)
    """Sum of the accuracy that the candidate would buy for the budgets that came."""
    expected_now: Share = field(default_factory=Share)
    """The same of the bundle that serves."""
    forward_ms: Share = field(default_factory=Share)
    forward_now_ms: Share = field(default_factory=Share)
    promises: Share = field(default_factory=Share)
    """Budgets it kept while it served, as a canary or after its promotion."""
    feedback: Share = field(default_factory=Share)
    """Its answers that were right, by feedback."""
    feedback_expected: Share = field(default_factory=Share)
    same_classes: bool = True

    @property
    def slowdown(self) -> float | None:
        """Its time over the other's."""
        mine, other = self.forward_ms.value, self.forward_now_ms.value
        return mine / other if mine is not None and other else None


def against_promotion(facts: Comparison, bounds: Bounds) -> list[str]:
    """Why a candidate may not take over (yet); empty if it may."""
    found = against_serving(facts, bounds)
    if facts.agreement.whole < bounds.samples:
        found.append(
            f"It has answered {facts.agreement.whole:.0f} of the {bounds.samples} pictures "
            "that are needed to judge it."
        )
    elif (agreement := facts.agreement.value or 0.0) < bounds.agreement and not found:
        found.append(
            f"It agrees with the bundle that serves on {agreement:.1%} of the pictures, less than "
            f"{bounds.agreement:.0%}."
        )
    mine, other = facts.expected.value, facts.expected_now.value
    if mine is not None and other is not None and mine < other - bounds.accuracy_loss:
        found.append(
            f"For the budgets that clients send it would serve an accuracy of {mine:.3f}, against "
            f"{other:.3f} now."
        )
    slowdown = facts.slowdown
    if slowdown is not None and slowdown > bounds.slowdown:
        found.append(f"Its best point takes {slowdown:.2f} times as long.")
    return list(dict.fromkeys(found))


def against_serving(facts: Comparison, bounds: Bounds) -> list[str]:
    """Why a bundle must not serve any longer; chance does not count as a reason."""
    found = []
    if not facts.same_classes:
        found.append("Its classes are others than those of the bundle that serves.")
    if facts.agreement.surely_below(bounds.agreement):
        found.append(
            f"It agrees with the other bundle on {facts.agreement.value:.1%} of "
            f"{facts.agreement.whole:.0f} pictures, less than {bounds.agreement:.0%}."
        )
    if facts.promises.surely_below(bounds.promises):
        found.append(
            f"It kept {facts.promises.value:.1%} of {facts.promises.whole:.0f} budgets, less than "
            f"{bounds.promises:.0%}."
        )
    expected = facts.feedback_expected.value
    if expected is not None and facts.feedback.surely_below(expected - bounds.accuracy_drop):
        found.append(
            f"By feedback {facts.feedback.value:.1%} of {facts.feedback.whole:.0f} answers were "
            f"right, where {expected:.1%} were expected."
        )
    return found
