"""What each client has taken lately: a sum that fades."""

from __future__ import annotations

import math

from service.runtime.clock import Clock

_MOST_CLIENTS = 1000


class Recent:
    """An amount per client that halves every so often; only a few clients are remembered."""

    def __init__(self, clock: Clock, half_ms: float) -> None:
        self._clock = clock
        self._half_ms = half_ms
        self._sums: dict[str, tuple[float, float]] = {}

    def of(self, client: str) -> float:
        """What is left of a client's sum."""
        return self._left(client, self._clock())

    def add(self, client: str, amount: float) -> None:
        """Add to a client's sum."""
        if len(self._sums) > _MOST_CLIENTS:
            self._sums.clear()
        now = self._clock()
        self._sums[client] = self._left(client, now) + amount, now

    def _left(self, client: str, now: float) -> float:
        amount, at_ms = self._sums.get(client, (0.0, now))
        return amount * math.exp2(-max(0.0, now - at_ms) / self._half_ms)

    def excess_ms(self, client: str, most: float) -> float:
        """How long until a client's sum has fallen to what it may be."""
        now = self.of(client)
        return self._half_ms * math.log2(now / most) if now > most else 0.0
