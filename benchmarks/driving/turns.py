"""Contenders in turns: each a little in every round, forwards and backwards alternately.

What disturbs the machine for a while then disturbs all of them, and ratios within a round hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

Call = Callable[[], object]
Rounds = dict[str, list[list[float]]]
"""By contender and round: milliseconds of each call."""


def in_turns(
    contenders: Mapping[str, Call],
    *,
    rounds: int,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Rounds:
    """Call each contender for `seconds` in each round, at least once, after a warm-up."""
    found: Rounds = {name: [] for name in contenders}
    names = list(contenders)
    for name in names:
        _block(contenders[name], seconds / 4, clock)
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            found[name].append(_block(contenders[name], seconds, clock))
    return found


def _block(call: Call, seconds: float, clock: Callable[[], float]) -> list[float]:
    took: list[float] = []
    until = clock() + seconds
    while (began := clock()) < until or not took:
        call()
        took.append((clock() - began) * 1e3)
    return took
