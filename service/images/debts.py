"""Who has decoded much lately: it waits for who has decoded little."""

from __future__ import annotations

import math

from service.runtime.clock import Clock

_FORGET_MS = 10_000.0
"""Time in which what a client has decoded counts half."""
_MOST_CLIENTS = 1000


class Debts:
    """Milliseconds that each client has decoded lately; few clients are remembered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spent: dict[str, tuple[float, float]] = {}

    def of(self, client: str) -> float:
        """What a client owes: later is the time by which its next image counts as due."""
        now = self._clock()
        spent, at_ms = self._spent.get(client, (0.0, now))
        return spent * math.exp2(-max(0.0, now - at_ms) / _FORGET_MS)

    def add(self, client: str, took_ms: float) -> None:
        """A client's image took so long."""
        if len(self._spent) > _MOST_CLIENTS:
            self._spent.clear()
        self._spent[client] = self.of(client) + took_ms, self._clock()
