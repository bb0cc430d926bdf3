"""Choosing an operating point: a pure function of the client's terms and each point's cost.

No clock, no I/O, no state. `choose` takes the most accurate point whose predicted time fits what is
left of the budget; if there is none it says so and why, and the pipeline acts on the verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from san_core.frontier import OperatingPoint
from service.request.terms import OnMiss


@dataclass(slots=True)
class Option:
    """One operating point as one request sees it now: its accuracy and where the time would go."""

    point: OperatingPoint
    accuracy: float
    decode_ms: float
    queue_ms: float
    """Waiting due to load: for a decoder, for the engine, for batches that are due earlier."""
    cold_ms: float
    """Time until the weights are ready; 0 if they are cached."""
    forward_ms: float
    overhead_ms: float = 0.0
    excess_ms: float = 0.0
    """By how much requests took longer lately than all other numbers here foretold."""
    contention_ms: float = 0.0
    """What of decoding, forward, overhead and excess is due to load."""
    reserve_ms: float = 0.0
    """Room it must leave under load: the more, the more accurate it is and the longer the queue.

    Without it every point fits until none does, and the first answer to load is a refusal.
    """

    @property
    def warm_ms(self) -> float:
        """The time it would take on an idle service with its weights cached."""
        foretold = self.decode_ms + self.forward_ms + self.overhead_ms + self.excess_ms
        return foretold - self.contention_ms

    @property
    def idle_ms(self) -> float:
        """The time it would take on an idle service."""
        return self.warm_ms + self.cold_ms

    @property
    def total_ms(self) -> float:
        """The time it is predicted to take from now."""
        return self.idle_ms + self.contention_ms + self.queue_ms

    @property
    def needed_ms(self) -> float:
        """The time that must be left for it to be chosen."""
        return self.total_ms + self.reserve_ms


@dataclass(slots=True)
class Situation:
    """What the request brings: how much time is gone, and what the client said."""

    allowed_ms: float
    """The budget, or the service's patience where the client named none."""
    spent_ms: float
    patience_ms: float
    has_budget: bool = True
    pinned: bool = False
    min_accuracy: float | None = None
    on_miss: OnMiss = OnMiss.ANSWER
    alone: bool = False
    """Whether no other request is inside: what keeps the engine busy is the service's own work."""

    @property
    def left_ms(self) -> float:
        """What is left of the budget."""
        return self.allowed_ms - self.spent_ms

    def takes_any_time(self, waiting_ms: float) -> bool:
        """Whether only waiting for others may be too long: nobody is in a hurry.

        What its own work takes under load is no reason to refuse who named no budget, and nothing
        is one to refuse who is alone.
        """
        in_no_hurry = self.alone or (not self.has_budget and waiting_ms <= self.left_ms)
        return in_no_hurry and self.on_miss is OnMiss.ANSWER


class Verdict(StrEnum):
    """What the policy says."""

    SERVE = "serve"
    """The chosen point is predicted to fit."""
    LATE = "late"
    """No point fits even on an idle service, or under this load and nobody is in a hurry; the
    chosen one is the fastest."""
    IMPOSSIBLE = "impossible"
    """The same, and the client said to refuse."""
    OVERLOADED = "overloaded"
    """A point would fit, but not under this load."""
    COLD = "cold"
    """A point fits once its weights are generated, and the client said to refuse until then."""
    INACCURATE = "inaccurate"
    """No point is as accurate as the client demands."""


@dataclass(slots=True)
class Decision:
    """The chosen option, the verdict and a sentence for the client."""

    verdict: Verdict
    option: Option
    reason: str
    given_up: float = 0.0
    """Accuracy that an idle service would have bought on top."""
    held_up: OperatingPoint | None = None
    """A more accurate point that only its cold weights keep from being chosen."""


def _fastest(options: Sequence[Option]) -> Option:
    return min(options, key=lambda option: (option.needed_ms, option.total_ms, -option.accuracy))


def _best(options: Sequence[Option], limit_ms: float, *, idle: bool = False) -> Option | None:
    """The most accurate option within the limit; the faster one of equals."""
    chosen: Option | None = None
    for option in options:
        if (option.idle_ms if idle else option.needed_ms) > limit_ms:
            continue
        if chosen is None or (option.accuracy, -option.forward_ms) > (
            chosen.accuracy,
            -chosen.forward_ms,
        ):
            chosen = option
    return chosen


def _held_up(
    options: Sequence[Option], limit_ms: float, accuracy: float = -1.0
) -> OperatingPoint | None:
    """The most accurate cold option above `accuracy` that would be within the limit if warm."""
    chosen: Option | None = None
    for option in options:
        if option.cold_ms <= 0 or option.accuracy <= accuracy:
            continue
        if option.needed_ms - option.cold_ms <= limit_ms:
            chosen, accuracy = option, option.accuracy
    return chosen.point if chosen is not None else None


def choose(situation: Situation, options: Sequence[Option]) -> Decision:
    """Choose among `options` (at least one; a pin leaves only the pinned)."""
    floor = situation.min_accuracy
    eligible = options if floor is None else [o for o in options if o.accuracy >= floor]
    if not eligible:
        best = max(options, key=lambda option: option.accuracy)
        return Decision(
            Verdict.INACCURATE,
            best,
            f"No point reaches an accuracy of {floor}; the best, {_name(best)}, has "
            f"{best.accuracy:.3f}.",
        )
    chosen = _best(eligible, situation.left_ms)
    idle = _best(eligible, situation.left_ms, idle=True)
    if chosen is not None:
        given_up = max(0.0, idle.accuracy - chosen.accuracy) if idle is not None else 0.0
        reason = _why(situation, eligible, chosen, idle if given_up > 0 else None)
        held_up = _held_up(eligible, situation.left_ms, chosen.accuracy)
        return Decision(Verdict.SERVE, chosen, reason, given_up, held_up)
    return _none_fits(situation, eligible, idle)


def _none_fits(situation: Situation, eligible: Sequence[Option], idle: Option | None) -> Decision:
    fastest = _fastest(eligible)
    budget = f"{situation.allowed_ms:g} ms"
    gone = f", of which {situation.spent_ms:.1f} ms were gone" if situation.spent_ms >= 1 else ""
    patient = situation.takes_any_time(fastest.queue_ms)
    if idle is not None and not patient:
        return Decision(
            Verdict.OVERLOADED,
            fastest,
            f"The load leaves no point that fits {budget}{gone}: the fastest, {_name(fastest)}, "
            f"would take {fastest.total_ms:.1f} ms, {fastest.queue_ms:.1f} of them waiting.",
        )
    took = f"{_name(fastest)}, takes {fastest.total_ms:.1f} ms"
    sentence = f"No point fits {budget}{gone}: the fastest, {took}"
    if situation.on_miss is OnMiss.REFUSE:
        warm = min(eligible, key=lambda option: option.warm_ms)
        if warm.warm_ms <= situation.left_ms:
            reason = (
                f"The weights of {_name(warm)} are being generated; once ready it fits {budget}."
            )
            return Decision(Verdict.COLD, warm, reason)
        fastest = warm
        return Decision(Verdict.IMPOSSIBLE, fastest, f"{sentence} on this host.")
    if fastest.queue_ms > 0 and fastest.total_ms > situation.patience_ms and not patient:
        return Decision(Verdict.OVERLOADED, fastest, f"{sentence}, more than the service waits.")
    return Decision(
        Verdict.LATE,
        fastest,
        f"{sentence}; it answers as fast as it can.",
        held_up=_held_up(eligible, situation.left_ms),
    )


def _why(
    situation: Situation, eligible: Sequence[Option], chosen: Option, unloaded: Option | None
) -> str:
    name = _name(chosen)
    took = f"{chosen.total_ms:.1f} ms"
    if unloaded is not None:
        return (
            f"Load lowered the choice from {_name(unloaded)} to {name}, the most accurate point "
            f"predicted to fit ({took} of {situation.left_ms:.1f} ms left)."
        )
    if situation.pinned:
        return f"The client pinned {name} (predicted {took})."
    if not situation.has_budget:
        return f"No budget was given, so the most accurate point: {name} (predicted {took})."
    better = [option for option in eligible if option.accuracy > chosen.accuracy]
    if not better:
        left = f"{situation.left_ms:.1f} ms left"
        return f"The most accurate point, {name}, fits (predicted {took} of {left})."
    following = min(better, key=lambda option: option.total_ms)
    cold = " with its weights still to be generated" if following.cold_ms > 0 else ""
    return (
        f"{name} is the most accurate point that fits (predicted {took} of "
        f"{situation.left_ms:.1f} ms left); the next, {_name(following)}{cold}, would take "
        f"{following.total_ms:.1f} ms."
    )


def _name(option: Option) -> str:
    point = option.point
    precision = "" if point.precision == "float" else f", {point.precision}"
    return f"{point.resolution} px ({point.mode}{precision})"
