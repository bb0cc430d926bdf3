"""Long runs while clients with shorter budgets are here: a run cannot be interrupted.

A run that takes more than half of another client's budget makes that client late if it comes
meanwhile. Promises may be broken now and then, by 1 - promise: for that part of the time long runs
are let through, and no more. What any request may be given without a pin is never long.
"""

from __future__ import annotations

_AROUND_MS = 2000.0
"""A client is here for so long after a request."""
_PART = 0.5
_ORDINARY = 1.5
"""Times the slowest point that the policy chooses among."""
_MOST_CLIENTS = 256


class Ration:
    """Knows whose budgets are short, and when the next long run may begin."""

    def __init__(self, promise: float) -> None:
        self._broken = 1.0 - promise
        self._budgets: dict[str, tuple[float, float]] = {}
        """Of each client: its last budget, and when it came."""
        self._last: str | None = None
        self._last_ms = self._others_ms = float("-inf")
        """The last client that named a budget, when it did, and when another did before it."""
        self.until_ms = float("-inf")
        """Before this no long run begins."""

    def came(self, client: str, budget_ms: float | None, now_ms: float) -> None:
        """A request came."""
        if budget_ms is None:
            return
        if len(self._budgets) >= _MOST_CLIENTS and client not in self._budgets:
            self._budgets = {k: x for k, x in self._budgets.items() if now_ms - x[1] <= _AROUND_MS}
            if len(self._budgets) >= _MOST_CLIENTS:
                return
        self._budgets[client] = budget_ms, now_ms
        if client != self._last:
            self._last, self._others_ms = client, self._last_ms
        self._last_ms = now_ms

    def has_others(self, client: str, now_ms: float) -> bool:
        """Whether another client named a budget lately: most services have one client."""
        heard_ms = self._others_ms if client == self._last else self._last_ms
        return now_ms - heard_ms <= _AROUND_MS

    def limit_ms(self, client: str, ordinary_ms: float, now_ms: float) -> float:
        """The longest run of a client's requests that harms no other."""
        shortest = min(
            (
                budget
                for name, (budget, at_ms) in self._budgets.items()
                if name != client and now_ms - at_ms <= _AROUND_MS
            ),
            default=float("inf"),
        )
        return max(_PART * shortest, _ORDINARY * ordinary_ms)

    def ran(self, run_ms: float, now_ms: float) -> None:
        """A long run begins."""
        self.until_ms = now_ms + run_ms / self._broken
