"""Choosing a replica: pure functions of what is known of each; for Ray's router and for replays."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from service.fleet.headroom import Headroom

FRESH_MS = 1000.0
"""A report older than this says nothing about load; what was sent since still does."""
SAMPLE = 16
"""Of how many replicas, drawn at random, the best is taken. Looking at a replica costs a router
nothing. With many routers, fewer: they would all send their next request to the same replica."""
_CROWD = 0.02
"""What a request inside costs those that come after it, in accuracy: by simulation."""


@dataclass(slots=True)
class View:
    """One replica as a router sees it."""

    headroom: Headroom | None = None
    """As last reported."""
    seen_ms: float = float("-inf")
    inside: int = 0
    """Requests that this router sent there and that have not come back."""
    then: int = 0
    """As many of them as there were when it reported."""

    def report(self, headroom: Headroom, now_ms: float) -> None:
        """Take in what the replica says of itself."""
        self.headroom, self.seen_ms, self.then = headroom, now_ms, self.inside

    def sent(self) -> None:
        """A request goes there."""
        self.inside += 1

    def left(self) -> None:
        """A request came back."""
        self.inside = max(0, self.inside - 1)

    def behind(self, now_ms: float) -> int:
        """By how many requests it has more than its report knows of; an old one knows of none."""
        return self.inside - (self.then if now_ms - self.seen_ms <= FRESH_MS else 0)


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
    """Of some drawn at random, the one that serves the most accuracy within the budget.

    Less what the request would cost others there. One that never reported is tried once.
    """

    def worth(view: View, left_ms: float, now_ms: float) -> float:
        headroom = view.headroom
        if headroom is None:
            return -_CROWD * view.inside
        return headroom.expected(left_ms, view.behind(now_ms)) - _CROWD * view.inside

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
