"""Time, injected: every part that needs it takes a `Clock`, tests hand in one they move by hand."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Returns milliseconds from an arbitrary start; never goes back."""


def monotonic_ms() -> float:
    """The clock of a running service."""
    return time.perf_counter_ns() / 1e6
