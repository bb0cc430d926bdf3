"""Quantiles of the recent past: a bounded window of samples that also grow old."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence

_LOAD_MS, _GAP_MS = 10_000.0, 750.0
"""How long a sample taken under load counts, and how long after the last one they all do."""


def quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of sorted samples, by the rank below: one outlier in thirty is no p99."""
    return ordered[int(q * (len(ordered) - 1))]


class Window:
    """The last `size` samples no older than `horizon_ms`, and none `gap_ms` after the last one."""

    def __init__(
        self, size: int = 256, horizon_ms: float = 60_000.0, gap_ms: float = float("inf")
    ) -> None:
        self._samples: deque[tuple[float, float]] = deque()
        self._ordered: list[float] = []
        self._size = size
        self._horizon_ms = horizon_ms
        self._gap_ms = gap_ms

    def add(self, now_ms: float, value: float) -> None:
        """Take a sample in; the oldest makes room."""
        self._end(now_ms)
        if len(self._samples) == self._size:
            self._forget()
        self._samples.append((now_ms, value))
        insort(self._ordered, value)

    def fresh(self, now_ms: float) -> list[float]:
        """The samples that have not grown old, smallest first: the window's own, to be read."""
        self._end(now_ms)
        oldest = now_ms - self._horizon_ms
        while self._samples and self._samples[0][0] < oldest:
            self._forget()
        return self._ordered

    def _forget(self) -> None:
        _, value = self._samples.popleft()
        del self._ordered[bisect_left(self._ordered, value)]

    def _end(self, now_ms: float) -> None:
        if self._samples and now_ms - self._samples[-1][0] > self._gap_ms:
            self._samples.clear()
            self._ordered.clear()


class Memory:
    """Samples of one thing, those taken under load apart from the others.

    Under load everything takes longer, and that ends with the load: its samples come first while
    new ones come in, and are all gone within a second after.
    """

    def __init__(self, size: int = 256, horizon_ms: float = 60_000.0) -> None:
        self.calm = Window(size, horizon_ms)
        self.loaded = Window(size, _LOAD_MS, _GAP_MS)
        self.added = 0
        """How many samples were ever added; tells a reader whether anything is new."""

    def add(self, now_ms: float, value: float, *, loaded: bool = False) -> None:
        """Take a sample in."""
        self.added += 1
        (self.loaded if loaded else self.calm).add(now_ms, value)

    def fresh(self, now_ms: float) -> list[float]:
        """All that have not grown old, smallest first."""
        return sorted(self.loaded.fresh(now_ms) + self.calm.fresh(now_ms))


class Blend:
    """Quantiles over what is known of one thing; while that is thin, of its kind, then the prior.

    `kind` remembers the samples of `own` too, among those of its likes. They are put together anew
    when enough is new or `refresh_ms` went by.
    """

    def __init__(
        self,
        own: Memory,
        kind: Memory | None = None,
        *,
        prior: Iterable[float] = (),
        enough: int = 48,
        refresh_ms: float = 100.0,
        refresh_samples: int = 8,
    ) -> None:
        self.own = own
        self._kind = kind or own
        self._prior = sorted(prior)
        self._enough = enough
        self._refresh_ms = refresh_ms
        self._refresh_samples = refresh_samples
        self._ordered: list[float] = []
        self._calm: list[float] = []
        self._sorted_at = float("-inf")
        self._sorted_added = 0

    def at(self, q: float, now_ms: float, *, calm: bool = False) -> float | None:
        """The q-quantile as of now; None while nothing at all is known.

        `calm`: as if there were no load.
        """
        ordered = self._calm if calm else self._ordered
        if (
            not ordered
            or now_ms - self._sorted_at >= self._refresh_ms
            or self.own.added - self._sorted_added >= self._refresh_samples
        ):
            self._sort(now_ms)
            ordered = self._calm if calm else self._ordered
        return quantile(ordered, q) if ordered else None

    def _sort(self, now_ms: float) -> None:
        own, kind = self.own, self._kind
        self._calm = self._more(self._known(own.calm, kind.calm, now_ms), self._prior)
        loaded = self._known(own.loaded, kind.loaded, now_ms)
        self._ordered = self._more(loaded, self._calm) if loaded else self._calm
        self._sorted_at = now_ms
        self._sorted_added = own.added

    def _known(self, own: Window, kind: Window, now_ms: float) -> list[float]:
        mine = own.fresh(now_ms)
        if len(mine) >= self._enough:
            return mine
        return max(mine, kind.fresh(now_ms), key=len)

    def _more(self, samples: list[float], others: list[float]) -> list[float]:
        # Sorting what consists of sorted parts only merges them.
        return samples if len(samples) >= self._enough else sorted(samples + others)
