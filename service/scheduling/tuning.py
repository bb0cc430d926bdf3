"""Every number that steers the schedule, what it means and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Chosen in simulation over the traces of `benchmarks.tournament`, which shows their effect."""

    horizon_ms: float = 75.0
    """How far ahead arrivals are expected when the engine's time is shared out."""
    usable: float = 0.9
    """Part of the engine's time that is shared out; the rest absorbs what nobody foresaw."""
    memory_ms: float = 400.0
    """Over how much busy time the arrival rate is averaged."""
    idle_memory_ms: float = 400.0
    """Over how much idle time it is forgotten: a second after a burst, a tenth of it is left."""
    thin: float = 0.05
    """A point may count as the floor if its accuracy per millisecond is within this of the best:
    of near equals the more accurate one."""
    clients_ms: float = 500.0
    """Over how much time a client's share of the engine is taken."""
    lookahead: int = 4
    """How many requests that a batch leaves behind are asked what that costs them."""
    broken: float = 3.0
    """What a chance of 1 to break a promise costs, in accuracy: a lone request gives up three
    points of accuracy for one point of chance, up to the promise and not beyond."""
    likely: float = 0.5
    """A request that nothing was promised to keeps its place in the queue from this chance on."""
    company: float = 1.5
    """While engine time has a price, a request waits for company at most so many times its run."""


TUNING = Tuning()
