"""Whoever is refused again and again is told so later and later: a refusal costs the event loop."""

from __future__ import annotations

from service.runtime.clock import Clock, monotonic_ms
from service.runtime.recent import Recent

_HALF_MS = 1000.0
_FREE = 100
_STEP_S, _LONGEST_S = 0.002, 0.25
"""About 70 refusals a second cost nothing. Beyond, each one waits longer than the one before."""


class Refusals:
    """How often each client, or address, was refused lately."""

    def __init__(self, clock: Clock = monotonic_ms) -> None:
        self._lately = Recent(clock, _HALF_MS)

    def pause_s(self, who: str) -> float:
        """Count a refusal; how long it should wait to be told."""
        self._lately.add(who, 1.0)
        return min(_LONGEST_S, _STEP_S * max(0.0, self._lately.of(who) - _FREE))
