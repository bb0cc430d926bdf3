"""Quantiles of the recent past: a bounded window of samples that also grow old."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence


def quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of sorted samples, by the rank below: one outlier in thirty is no p99."""
    return ordered[int(q * (len(ordered) - 1))]


class Window:
    """The last `size` samples no older than `horizon_ms`."""

    def __init__(self, size: int = 256, horizon_ms: float = 60_000.0) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=size)
        self._horizon_ms = horizon_ms
        self.added = 0
        """How many samples were ever added; tells a reader whether anything is new."""

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, now_ms: float, value: float) -> None:
        """Take a sample in; the oldest makes room."""
        self._samples.append((now_ms, value))
        self.added += 1

    def fresh(self, now_ms: float) -> list[float]:
        """The samples that have not grown old, in order of arrival."""
        oldest = now_ms - self._horizon_ms
        while self._samples and self._samples[0][0] < oldest:
            self._samples.popleft()
        return [value for _, value in self._samples]


class Blend:
    """Quantiles over several windows: the own one first, others only while it is thin.

    Sorting is the cost, so the order is kept until enough is new or `refresh_ms` went by.
    """

    def __init__(
        self,
        own: Window,
        *fallbacks: Window,
        prior: Iterable[float] = (),
        enough: int = 48,
        refresh_ms: float = 250.0,
        refresh_samples: int = 8,
    ) -> None:
        self.own = own
        self._fallbacks = fallbacks
        self._prior = list(prior)
        self._enough = enough
        self._refresh_ms = refresh_ms
        self._refresh_samples = refresh_samples
        self._ordered: list[float] = []
        self._sorted_at = float("-inf")
        self._sorted_added = 0

    def at(self, q: float, now_ms: float) -> float | None:
        """The q-quantile as of now; None while nothing at all is known."""
        new = self.own.added - self._sorted_added
        if new >= self._refresh_samples or now_ms - self._sorted_at >= self._refresh_ms:
            self._sort(now_ms)
        return quantile(self._ordered, q) if self._ordered else None

    def _sort(self, now_ms: float) -> None:
        samples = self.own.fresh(now_ms)
        for window in self._fallbacks:
            if len(samples) >= self._enough:
                break
            samples += window.fresh(now_ms)
        if len(samples) < self._enough:
            samples += self._prior
        self._ordered = sorted(samples)
        self._sorted_at = now_ms
        self._sorted_added = self.own.added
