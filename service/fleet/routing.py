"""Choosing a replica by what each reported: pure functions, for Ray's router and for replays."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from service.fleet.headroom import Headroom

SAMPLE = 16
"""Of how many replicas, drawn at random, the best is taken by a router that is alone. Looking at a
replica costs a router nothing."""
_FEWEST = 3
"""The same where most work is of other routers: they all know the same old reports, and would all
send their next request to the same replica."""
_ALONE = 0.8
"""Part of the work inside that a router has sent if there is no other: reports are a little old."""
_MOST = 0.5
"""Part of the work inside below which a router knows too little to make room for others."""
_MEMORY = 0.02
"""What a report counts among those before it."""
_SPARE = 0.9
"""Part of a budget within which a replica must serve a request to be chosen for others' sake."""
_PATIENCE_MS = 50.0
"""Longer budgets count as this one. Behind more work than about two batches a request only makes
its replica lower the resolution for all that wait there: with 100 ms, fleets in `san replay` lost
one to four hundredths of what 50 ms gain."""
_RECENT = 32
"""How many recent requests the shortest budget is taken of; others will come with it again."""
_LIKELY = 0.6
"""Part of a budget that is kept almost always at which it is still kept more often than not."""
_TOLD_MS = 30.0
"""For how long it is believed that a replica does not keep short budgets when it is idle."""
_FAR_OFF = 3.0
"""An answer took so many times what its replica said it needs when idle: its reports are not to be
believed. A stall of the kind that one in a hundred meets takes half of that."""
_DOUBT_MS, _MOST_DOUBT_MS = 500.0, 30_000.0
"""For how long its reports are then not believed: twice as long each time in a row, and at most."""
_UNKNOWN = 2.0
"""What a millisecond of work adds to a budget, until a busy replica has told."""
_ALIKE = 0.03
"""Accuracies that differ by less are the same: reports are a little old."""


@dataclass(slots=True)
class View:
    """One replica as a router sees it.

    What a replica reports is old when the next request comes. So the router keeps the last report
    of the idle replica and the last one of the busy replica, and knows itself which of them holds:
    the requests that it sent are still there, and the work of others is done as time passes.
    """

    headroom: Headroom | None = None
    """As last reported."""
    idle: Headroom | None = None
    """As last reported with nothing inside."""
    idle_told_ms: float = float("-inf")
    """When it reported so."""
    busy: Headroom | None = None
    """As last reported with work inside."""
    inside: int = 0
    """Requests that this router sent there and that have not come back."""
    others_ms: float = float("-inf")
    """When the work that others sent will be done."""
    quiet_ms: float = float("inf")
    """Since when nothing came back, though a request of this router was inside."""
    doubted_ms: float = 0.0
    """For how long its reports were not believed the last time; 0 once it kept what it said."""
    doubted_until_ms: float = float("-inf")
    mean_wait_ms: float = 0.0
    """Of what was reported lately."""
    mean_mine_ms: float = 0.0
    """The part of it that this router had sent."""

    def report(self, headroom: Headroom, now_ms: float) -> None:
        """Take in what the replica says of itself; what it said before is not news."""
        if headroom == self.headroom:
            return
        self.headroom = headroom
        mine_ms = self.inside * headroom.work_ms
        self.others_ms = now_ms + headroom.wait_ms - mine_ms
        self.mean_wait_ms += _MEMORY * (headroom.wait_ms - self.mean_wait_ms)
        self.mean_mine_ms += _MEMORY * (min(mine_ms, headroom.wait_ms) - self.mean_mine_ms)
        if headroom.wait_ms > 0:
            self.busy = headroom
        else:
            self.idle, self.idle_told_ms = headroom, now_ms

    def sent(self, now_ms: float) -> None:
        """A request goes there."""
        if not self.inside:
            self.quiet_ms = now_ms
        self.inside += 1

    def left(self, now_ms: float) -> None:
        """A request came back.

        If it had the replica to itself, its time shows what reports are worth: a replica on a core
        that others use may look fast whenever it measures itself.
        """
        if self.inside == 1 and self.idle is not None:
            if now_ms - self.quiet_ms > _FAR_OFF * self.idle.points[-1][1]:
                self.doubted_ms = min(_MOST_DOUBT_MS, max(_DOUBT_MS, 2.0 * self.doubted_ms))
                self.doubted_until_ms = now_ms + self.doubted_ms
            else:
                self.doubted_ms = 0.0
        self.quiet_ms = now_ms
        self.inside = max(0, self.inside - 1)

    def ahead_ms(self, now_ms: float) -> float:
        """Work ahead of a request that is sent now: this router's, and the rest of others'.

        If an answer is overdue, it is taken to need as long again.
        """
        if self.headroom is None:
            return 0.0
        known = self.inside * self.headroom.work_ms + max(0.0, self.others_ms - now_ms)
        if not self.inside:
            return known
        due_ms = (self.idle or self.headroom).points[-1][1] + known
        return known + max(0.0, now_ms - self.quiet_ms - due_ms)

    def expected(self, budget_ms: float, ahead_ms: float) -> float:
        """The accuracy that it serves within a budget, behind so much work."""
        if self.headroom is None:
            return 0.0
        if self.idle is None:
            return self._busy().expected(budget_ms - self._more_ms(ahead_ms))
        idle = self.idle.expected(budget_ms)
        if ahead_ms <= 0:
            return idle
        return min(idle, self._busy().expected(budget_ms - self._more_ms(ahead_ms)))

    def needs_ms(self, ahead_ms: float) -> float:
        """The smallest budget that it keeps, behind so much work."""
        if self.headroom is None:
            return float("inf")
        if self.idle is not None and ahead_ms <= 0:
            return self.idle.points[0][1]
        return self._busy().points[0][1] + self._more_ms(ahead_ms)

    def soonest_ms(self, ahead_ms: float) -> float:
        """When it answers if all goes well, behind so much work."""
        if self.headroom is None:
            return float("inf")
        return (self.idle or self.headroom).points[0][1] + ahead_ms

    def _busy(self) -> Headroom:
        found = self.busy or self.headroom
        assert found is not None
        return found

    def _more_ms(self, ahead_ms: float) -> float:
        """What to add to the budgets of the report about a busy replica."""
        return _UNKNOWN * ahead_ms if self.busy is None else ahead_ms - self.busy.wait_ms


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
    """Of some drawn at random: the most accuracy in time, at the least cost to those that follow.

    Replicas that serve a request equally well differ in what is lost by sending it there. One that
    is idle keeps the shortest budgets, and no longer does with a request inside; one that is busy,
    or slow, does not keep them anyway. So if one of the latter has time to spare for a request, it
    goes there: to the one that keeps short budgets least. One that no replica keeps goes where it
    is answered soonest. A replica that never reported is tried once.

    The more of the work inside is of other routers, the fewer replicas are looked at. If most is,
    nothing is done for others' sake: replicas take turns, as far as none of a few others serves a
    request better. Many routers that each go round spread work more evenly than what they hear of
    it can tell them.
    """
    recent: deque[float] = deque(maxlen=_RECENT)
    turn = count()

    def choose(views: Sequence[View], left_ms: float, now_ms: float) -> int:
        drawn = _draw(chance, len(views), sample)
        mine = _mine(views, drawn)
        if mine < _MOST:
            first = next(turn) % len(views)
            drawn = [first, *(i for i in drawn if i != first)][:_FEWEST]
        else:
            drawn = drawn[: max(_FEWEST, round(mine * mine * len(drawn)))]
        for i in drawn:
            if views[i].headroom is None and not views[i].inside:
                return i  # how else would it report
        if left_ms >= _LIKELY * min(views[i].soonest_ms(0.0) for i in drawn):
            recent.append(left_ms)  # one that an idle replica keeps: others are nobody's loss
        drawn = [i for i in drawn if views[i].doubted_until_ms <= now_ms] or drawn
        ahead = {i: views[i].ahead_ms(now_ms) for i in drawn}
        served = {i: views[i].expected(left_ms, ahead[i]) for i in drawn}
        best = max(served.values())
        if best <= 0:
            return min(drawn, key=lambda i: views[i].soonest_ms(ahead[i]))
        enough = best - _ALIKE
        needs = {i: views[i].needs_ms(ahead[i]) for i in drawn if served[i] >= enough}
        if mine < _MOST:
            return drawn[0] if drawn[0] in needs else min(needs, key=needs.__getitem__)
        tight, spare_ms = min(recent, default=left_ms), _SPARE * min(left_ms, _PATIENCE_MS)
        taken = [
            i
            for i, needed in needs.items()
            if needed > tight and views[i].expected(spare_ms, ahead[i]) >= enough
        ]
        again = [i for i in taken if ahead[i] <= 0 and now_ms - views[i].idle_told_ms > _TOLD_MS]
        if again:
            return min(again, key=lambda i: views[i].idle_told_ms)
        return max(taken, key=needs.__getitem__) if taken else min(needs, key=needs.__getitem__)

    return choose


ROUTERS: dict[str, Callable[[random.Random], Choose]] = {
    "random": at_random,
    "round-robin": round_robin,
    "least-requests": least_requests,
    "headroom": by_headroom,
}


def _mine(views: Sequence[View], drawn: Sequence[int]) -> float:
    """Share of the work inside that this router has sent."""
    wait_ms = sum(views[i].mean_wait_ms for i in drawn)
    mine_ms = sum(views[i].mean_mine_ms for i in drawn)
    return min(1.0, mine_ms / (_ALONE * wait_ms)) if wait_ms > 0 else 1.0


def _draw(chance: random.Random, size: int, wanted: int) -> Sequence[int]:
    return chance.sample(range(size), min(size, wanted))  # in any order: the first of equals wins
