"""What is learnt from the recent past: factors on medians, and the chance to be in time."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from statistics import NormalDist
from typing import Protocol


def quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of sorted values, which must not be empty."""
    return ordered[min(len(ordered) - 1, max(0, math.ceil(q * len(ordered)) - 1))]


@dataclass(frozen=True)
class Learning:
    """How quickly the past is forgotten."""

    gain: float = 0.1
    """Of a factor: how far one observation moves it. 20 observations undo a doubling, which is a
    fifth of a second of a client that sends one request after another."""
    fade: float = 0.02
    """How far one lone request moves what was learnt under load towards what it shows: a slow
    spell must not be remembered by a service that refuses everybody because of it."""
    most: float = 0.35
    """Of a factor: one observation counts as at most this far off (in log), so that a factor
    follows the median and not the mean."""
    samples: int = 128
    """Of a spread: as few as still show one in a hundred, so that noise is forgotten within about
    a second of ordinary traffic."""
    few: int = 32
    """Of a spread: so many stay however old they are, and so many replace the prior."""
    horizon_ms: float = 1000.0
    """Of a spread: older samples go as new ones come, so that a noisy spell is forgotten within a
    second of quiet traffic."""
    steer: float = 0.02
    """By how much one broken promise widens the spread (in log); a kept one narrows it by a
    hundredth of that. Gibbs and Candès (2021), with the quantile's level replaced by its width."""
    widest: float = 0.5
    """Of the steering: 1.6 times wider or narrower than what was seen is the most."""
    tail: float = 6.0
    """Of a spread: beyond the largest sample the chance to be late falls with this power."""
    ample: float = 8.0
    """A request with this many times the time it needs is late only by the host's own doing, which
    no choice of ours prevents and no promise can cover."""
    outcome: float = 0.05
    """By how much one broken promise under load widens what is allowed for (in log); a kept one
    narrows it by a hundredth of that."""
    outcome_ms: float = 3000.0
    """Over how much time that is forgotten: without answers nothing else would undo it."""
    pause_ms: float = 100.0
    """Forgetting begins so long after an answer: while there are answers they steer."""
    roomier: float = 0.45
    """How far outcomes move it at most: where noise breaks promises whatever is chosen, refusing
    everybody would not keep them. Never below the assumed spread: a calm second says nothing about
    the flood that may follow it."""


LEARNING = Learning()


def _lognormal(deviation: float) -> tuple[float, ...]:
    return tuple(exp(deviation * NormalDist().inv_cdf((i + 0.5) / 100)) for i in range(100))


PRIOR = _lognormal(0.13)
"""Spread before anything was seen: one in a hundred takes 1.35 times its predicted median, as with
one client on a host that nobody else uses (`python -m benchmarks.budgets`)."""
TYPICAL_MS = 10.0
"""A prediction under load of which `_BUSY_DEVIATION` speaks."""
_BUSY_DEVIATION = 0.2
"""The same under load, as a deviation of the logarithm: one in a hundred takes 1.6 times its
median. What is queued before a request adds up, and so do its errors: the deviation falls with the
root of the prediction. On servers (gamma4-2) one in a hundred took 3.1 times 10 to 15 ms, 2.1 times
25 to 30 ms and 1.65 times 30 to 40 ms, with what came before them later."""
_LEAST_DEVIATION = 0.15
"""However long the prediction: errors that all parts share do not average out. With 0.1 servers
broke more promises in bursts (`benchmarks.tournament --real`)."""


class Factor:
    """A factor on a prediction: the running median of observed over predicted."""

    __slots__ = ("_gain", "_log", "value")

    def __init__(self, start: float = 1.0, gain: float = LEARNING.gain) -> None:
        self._log = math.log(start)
        self._gain = gain
        self.value = start
        """What predictions are multiplied by."""

    def learn(self, ratio: float, gain: float | None = None) -> None:
        """Take in one ratio of observed to predicted, the factor left out of the prediction."""
        if ratio > 0:
            off = math.log(ratio) - self._log
            self._log += (gain or self._gain) * max(-LEARNING.most, min(LEARNING.most, off))
            self.value = math.exp(self._log)

    def fade(self, ratio: float) -> None:
        """Come down a little towards what was seen without load."""
        if ratio < self.value:
            self.learn(ratio, LEARNING.fade)


class Chances(Protocol):
    """How likely an answer is in time."""

    @property
    def target(self) -> float:
        """The chance that counts as a promise: the promised share of what this host can keep."""

    def bound_ms(self, median_ms: float) -> float:
        """What a request must be allowed to be promised, by its predicted median."""

    def probability(self, left_ms: float, median_ms: float) -> float:
        """The chance that a request with so much time left is in time."""


class Spread:
    """The distribution of whole times over their predicted medians, steered to keep a promise.

    `bound` is the factor that the promised share of answers keeps. Each answer shows whether it
    did; the spread is widened or narrowed until the share that keeps it is the one that was
    promised, whatever the distribution does (adaptive conformal prediction).
    """

    def __init__(self, promise: float, prior: Sequence[float] = PRIOR) -> None:
        self.promise = promise
        self._prior = sorted(prior)
        self._samples: deque[tuple[float, float]] = deque()
        self._ordered: list[float] = list(self._prior)
        self._steer = 0.0
        self._scale = 1.0
        self._conclude()

    def _conclude(self) -> None:
        """What is asked many times between two answers."""
        self.target = self.promise * self.within(LEARNING.ample)
        """The chance that counts as a promise."""
        self.bound = self._bound()
        """The factor within which the promised share of answers stays."""

    def _bound(self) -> float:
        ordered, target = self._ordered, self.target
        inside = quantile(ordered, target)
        if (1.0 - target) * len(ordered) < 1.0:
            # The window is too short to show it; the tail continues it.
            missing = 1.0 / ((1.0 - target) * len(ordered))
            inside = ordered[-1] * missing ** (1.0 / LEARNING.tail)
        return inside * self._scale

    def at(self, q: float) -> float:
        """The q-quantile of the recent ratios, as seen."""
        return quantile(self._ordered, q)

    def bound_ms(self, median_ms: float) -> float:
        """What a request must be allowed to be promised, by its predicted median."""
        return self.bound * median_ms

    def probability(self, left_ms: float, median_ms: float) -> float:
        """The chance that a request with so much time left is in time."""
        return self.within(left_ms / median_ms) if left_ms > 0 else 0.0

    def within(self, ratio: float) -> float:
        """The chance that an answer takes at most `ratio` times its predicted median."""
        ordered = self._ordered
        ratio /= self._scale
        below = bisect_right(ordered, ratio)
        n = len(ordered)
        if below < n:
            return below / n
        return 1.0 - float((ordered[-1] / ratio) ** LEARNING.tail) / n

    def learn(self, now_ms: float, ratio: float) -> None:
        """Take in one whole time over its predicted median."""
        broken = ratio > self.bound
        steer = self._steer + LEARNING.steer * (broken - (1.0 - self.target))
        self._steer = max(-LEARNING.widest, min(LEARNING.widest, steer))
        self._scale = math.exp(self._steer)
        samples, ordered = self._samples, self._ordered
        samples.append((now_ms, ratio))
        insort(ordered, ratio)
        if len(samples) == LEARNING.few and len(ordered) > len(samples):
            for known in self._prior:
                del ordered[bisect_left(ordered, known)]
        oldest = now_ms - LEARNING.horizon_ms
        while len(samples) > LEARNING.samples or (
            samples[0][0] < oldest and len(samples) > LEARNING.few
        ):
            _, old = samples.popleft()
            del ordered[bisect_left(ordered, old)]
        self._conclude()


class Outcomes:
    """The chance to be in time under load, steered by which promises were kept.

    Under load a request that may wait is made to wait, so that its time says little about what it
    needed: there the ratio of a time to its prediction has an assumed deviation, and whether
    promises are kept moves its centre.
    """

    _UNIT = NormalDist()

    def __init__(self, promise: float) -> None:
        self.target = promise
        self._within = self._UNIT.inv_cdf(promise)
        self._centre = 0.0
        self._seen_ms = 0.0

    def bound_ms(self, median_ms: float) -> float:
        """What a request must be allowed to be promised, by its predicted median."""
        return median_ms * exp(self._centre + self._within * self._deviation(median_ms))

    def probability(self, left_ms: float, median_ms: float) -> float:
        """The chance that a request with so much time left is in time."""
        if left_ms <= 0:
            return 0.0
        off = math.log(left_ms / median_ms) - self._centre
        return self._UNIT.cdf(off / self._deviation(median_ms))

    @staticmethod
    def _deviation(median_ms: float) -> float:
        return max(_LEAST_DEVIATION, _BUSY_DEVIATION * math.sqrt(TYPICAL_MS / median_ms))

    def forget(self, now_ms: float) -> None:
        """Let time pass."""
        if now_ms > self._seen_ms:
            self._centre *= exp((self._seen_ms - now_ms) / LEARNING.outcome_ms)
            self._seen_ms = now_ms

    def learn(self, now_ms: float, *, kept: bool) -> None:
        """Take in whether a promise was kept."""
        self.forget(now_ms)
        self._seen_ms = max(self._seen_ms, now_ms + LEARNING.pause_ms)
        centre = self._centre + LEARNING.outcome * (self.target - kept)
        self._centre = max(0.0, min(LEARNING.roomier, centre))


class Spreads:
    """What whole times do with nobody else inside, and under load."""

    def __init__(self, promise: float) -> None:
        self.promise = promise
        self.alone, self.busy, self.behind = Spread(promise), Outcomes(promise), Outcomes(promise)
        """`behind`: of clients that want more than their share. What they make each other miss
        must not make the service careful with the others."""

    def of(self, *, alone: bool, behind: bool = False) -> Chances:
        """The one that holds now."""
        return self.alone if alone else self.loaded(behind=behind)

    def loaded(self, *, behind: bool) -> Outcomes:
        """Under load."""
        return self.behind if behind else self.busy
