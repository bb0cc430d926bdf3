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


def one_by_one(
    contenders: Mapping[str, Call],
    *,
    rounds: int,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Rounds:
    """Call all contenders once, again and again, for `seconds` times their number in each round.

    For the parts of a whole: in a loop of its own a part finds its caches warm and its threads
    awake, as it never does between the others.
    """
    found: Rounds = {name: [] for name in contenders}
    for number in range(-1, rounds):
        took: Rounds = {name: [[]] for name in contenders}
        until = clock() + seconds * (len(contenders) if number >= 0 else 1)
        while clock() < until or not any(rows[0] for rows in took.values()):
            for name, call in contenders.items():
                began = clock()
                call()
                took[name][0].append((clock() - began) * 1e3)
        if number >= 0:  # the first was the warm-up
            for name, rows in took.items():
                found[name] += rows
    return found


def _block(call: Call, seconds: float, clock: Callable[[], float]) -> list[float]:
    took: list[float] = []
    until = clock() + seconds
    while (began := clock()) < until or not took:
        call()
        took.append((clock() - began) * 1e3)
    return took
