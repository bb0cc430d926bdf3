"""How often clients may have networks built for points that the policy would not choose.

A build takes a core for a tenth of a second and more, and a client can ask for hundreds in a
second. So few of them wait at a time, and each client gets a few a minute.
"""

from __future__ import annotations

from collections import deque

from service.runtime.clock import Clock

MOST_WAITING = 2
MOST_WARMING = 16
"""Points that an operator may have under way at a time."""
MOST_PER_CLIENT = 6
WINDOW_MS = 60_000.0
_MOST_CLIENTS = 1000


class BuildLimits:
    """Says whether a client may have a network built now, and remembers that it did."""

    def __init__(self, clock: Clock) -> None:
        self.refused = 0
        self._clock = clock
        self._begun: dict[str, deque[float]] = {}

    def allow(self, client: str, waiting: int) -> bool:
        """Count a build for a client, unless too many wait (`waiting`) or it has had its share."""
        now = self._clock()
        if client not in self._begun and len(self._begun) >= _MOST_CLIENTS:
            self._begun = {
                name: times for name, times in self._begun.items() if now - times[-1] < WINDOW_MS
            }
        times = self._begun.get(client) or deque(maxlen=MOST_PER_CLIENT)
        is_full = len(times) == MOST_PER_CLIENT and now - times[0] < WINDOW_MS
        if is_full or waiting >= MOST_WAITING or len(self._begun) > _MOST_CLIENTS:
            self.refused += 1
            return False
        times.append(now)
        self._begun[client] = times
        return True
