"""Every number that steers the schedule, what it means and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Chosen over the traces of `benchmarks.tournament`, which shows their effect.

    What depends on how cores are shared was chosen on servers (`--real`), the rest in simulation.
    """

    horizon_ms: float = 80.0
    """How far ahead arrivals are expected when the engine's time is shared out."""
    usable: float = 0.75
    """Part of the engine's time that is shared out; the rest absorbs what nobody foresaw."""
    memory_ms: float = 400.0
    """Over how much busy time the arrival rate is averaged."""
    settle_ms: float = 20.0
    """So much time without an arrival is assumed before the first: two that meet by chance are not
    a burst."""
    idle_memory_ms: float = 400.0
    """Over how much idle time it is forgotten: a second after a burst, a tenth of it is left."""
    thin: float = 0.05
    """Of the batches that get as much done, within this part, the shortest runs."""
    floor: float = 0.02
    """Of the points with the most accuracy per millisecond, within this part, the most accurate one
    is the floor. Times are known to a few percent, and a flood gets more answers below than above
    the best (`--real`)."""
    clients_ms: float = 500.0
    """Over how much time a client's share of the engine is taken."""
    lookahead: int = 4
    """How many requests that a batch leaves behind are asked what that costs them."""
    broken: float = 3.0
    """What a chance of 1 to break a promise costs, in accuracy: a lone request gives up three
    points of accuracy for one point of chance, up to the promise and not beyond."""
    certain: float = 0.999
    """A lone request with this chance to be in time at the most accurate point gets it: points are
    further apart in accuracy than the chance that is missing."""
    best_effort: float = 0.9
    """From this chance on a request is let in without a promise, if engine time has no price."""
    unseen: float = 0.06
    """Part of a budget that passes under load before a request is read and after its answer is
    written, in buffers and on the client's side: 99 of 100 answers are aimed at the rest."""
    likely: float = 0.5
    """A request that nothing was promised to keeps its place in the queue from this chance on."""
    room: float = 1.5
    """A batch may grow until its predicted time, so many times, reaches the tightest deadline in
    it: on a quiet host that is the promise's own bound (`benchmarks.budgets`)."""
    crowd: int = 3
    """So many requests inside keep decoders, engine and event loop busy at the same time: what is
    got done then is what the host can do."""
    company: float = 1.5
    """While engine time has a price, a request waits for company at most so many times its run."""


TUNING = Tuning()
