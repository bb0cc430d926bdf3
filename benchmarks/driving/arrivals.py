"""When requests arrive: offsets in seconds from the start of a run, drawn ahead of it."""

from __future__ import annotations

from enum import StrEnum

import numpy as np


class Arrivals(StrEnum):
    """How arrivals are spread."""

    POISSON = "poisson"
    """Gaps are exponential: independent clients."""
    BURSTY = "bursty"
    """Gaps are gamma distributed with a squared coefficient of variation of 4."""


_SHAPE = {Arrivals.POISSON: 1.0, Arrivals.BURSTY: 0.25}
"""Of the gamma distribution: one over the squared coefficient of variation of the gaps."""


def schedule(kind: Arrivals, rate: float, seconds: float, seed: int) -> list[float]:
    """Arrival times within `seconds` at `rate` per second; the same for the same seed.

    The number of arrivals is what `rate` says, so that two servers and two loads compare exactly.
    """
    rng = np.random.default_rng(seed)
    count = max(1, round(rate * seconds))
    gaps = rng.gamma(_SHAPE[kind], 1.0, count + 1)
    times = np.cumsum(gaps)
    return list(times[:-1] / times[-1] * seconds)
