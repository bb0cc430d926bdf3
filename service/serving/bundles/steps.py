"""How far a bundle is from being ready, and how long that will still take."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from service.runtime.clock import Clock

logger = logging.getLogger(__name__)

STEPS = (
    "loading the bundle",
    "building the first networks",
    "measuring this machine",
    "warming up",
)
_FIRST_START = (0.33, 0.43, 0.18, 0.06)
"""What share of a first start each step takes: medians of five starts of the default bundle on two
cores with an empty cache. Only for a machine whose last start is not known."""


class Progress(NamedTuple):
    """Steps done, of how many, and the time that the others will take, if that is known."""

    done: int
    total: int
    seconds_left: float | None = None


class Steps:
    """The steps to a bundle that is ready: each is announced, timed, and estimated beforehand."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun: list[float] = []
        """When each step began; at the end also when the last one ended."""
        self._before: tuple[float, ...] = ()

    def begin(self) -> None:
        """Begin the next step."""
        self._begun.append(self._clock())
        logger.info(self.doing, extra={"progress": self.progress})

    def remember(self, before_ms: Sequence[float]) -> None:
        """Learn what the steps took at the last start."""
        if len(before_ms) == len(STEPS):
            self._before = tuple(before_ms)

    def end(self) -> list[float]:
        """End the last step; gives what each took, in milliseconds."""
        self._begun.append(self._clock())
        return [after - before for before, after in pairwise(self._begun)]

    @property
    def doing(self) -> str:
        """The step that is under way."""
        return (
            STEPS[self._done]
            if self._begun
            else "waiting for another service that measures this machine"
        )

    @property
    def _done(self) -> int:
        return min(max(0, len(self._begun) - 1), len(STEPS) - 1)

    @property
    def progress(self) -> Progress:
        """How far it is now."""
        left = self._left_ms()
        return Progress(self._done, len(STEPS), None if left is None else round(left / 1000, 1))

    def _left_ms(self) -> float | None:
        """What the steps took at the last start, else their shares at the pace of those done.

        A step that takes longer than expected keeps the estimate where it is; after the last one
        there is none.
        """
        done = self._done
        expected = self._before
        if not expected:
            if not done:
                return None
            pace = (self._begun[done] - self._begun[0]) / sum(_FIRST_START[:done])
            expected = tuple(pace * share for share in _FIRST_START)
        rest = expected[done] - (self._clock() - self._begun[done])
        return max(0.0, rest) + sum(expected[done + 1 :]) or None
