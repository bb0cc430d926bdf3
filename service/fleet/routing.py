"""Choosing a replica: pure functions of what is known of each; for Ray's router and for replays."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from service.fleet.headroom import Headroom

FRESH_MS = 1000.0
"""A report older than this says nothing about load; what was sent since still does."""
SAMPLE = 2
"""Of how many replicas, drawn at random, the best is taken. More would send everybody to the same
one while reports are under way."""


@dataclass(slots=True)
class View:
    """One replica as a router sees it."""

    headroom: Headroom | None = None
    """As last reported."""
    seen_ms: float = float("-inf")
    inside: int = 0
    """Requests that this router sent there and that have not come back."""
    since: int = 0
    """Requests that this router sent there since the report."""

    def report(self, headroom: Headroom, now_ms: float) -> None:
        """Take in what the replica says of itself."""
        self.headroom, self.seen_ms, self.since = headroom, now_ms, 0

    def sent(self) -> None:
        """A request goes there."""
        self.inside += 1
        self.since += 1

    def left(self) -> None:
        """A request came back."""
        self.inside = max(0, self.inside - 1)
        self.since = min(self.since, self.inside)


Choose = Callable[[Sequence[View], float, float], int]
"""(views, budget left in ms, now in ms) -> index of the replica."""


def at_random(chance: random.Random) -> Choose:
    """Any."""
    return lambda views, _left, _now: chance.randrange(len(views))


def round_robin(_: random.Random) -> Choose:
    """One after the other."""
    turn = count()
    return lambda views, _left, _now: next(turn) % len(views)


def least_requests(chance: random.Random) -> Choose:
    """Of two drawn at random, the one with fewer requests inside: what most balancers do."""

    def choose(views: Sequence[View], _left: float, _now: float) -> int:
        drawn = _draw(chance, len(views), 2)
        return min(drawn, key=lambda i: views[i].inside)

    return choose


def by_headroom(chance: random.Random, sample: int = SAMPLE) -> Choose:
    """Of a few drawn at random, the one that serves the most accuracy within the budget.

    Of equals, the one that is left with the most slack. One that has not reported lately is taken
    for an idle one of which only the requests inside are known.
    """

    def worth(view: View, left_ms: float, now_ms: float) -> tuple[float, float]:
        headroom = view.headroom
        if headroom is None:
            return 0.0, -float(view.inside)
        behind = view.since if now_ms - view.seen_ms <= FRESH_MS else view.inside
        return headroom.accuracy(left_ms, behind), headroom.slack_ms(left_ms, behind)

    def choose(views: Sequence[View], left_ms: float, now_ms: float) -> int:
        drawn = _draw(chance, len(views), sample)
        unknown = [i for i in drawn if views[i].headroom is None and not views[i].inside]
        if unknown:
            return unknown[0]  # how else would it report
        return max(drawn, key=lambda i: worth(views[i], left_ms, now_ms))

    return choose


ROUTERS: dict[str, Callable[[random.Random], Choose]] = {
    "random": at_random,
    "round-robin": round_robin,
    "least-requests": least_requests,
    "headroom": by_headroom,
}


def _draw(chance: random.Random, size: int, wanted: int) -> Sequence[int]:
    return chance.sample(range(size), min(size, wanted))  # in any order: the first of equals wins
