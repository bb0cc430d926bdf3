"""Quantiles of the recent past: a bounded window of samples that also grow old."""

from __future__ import annotations

from collections import Counter, deque
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
        self._samples: deque[tuple[float, float]] = deque(maxlen=size)
        self._horizon_ms = horizon_ms
        self._gap_ms = gap_ms
        self.added = 0
        """How many samples were ever added; tells a reader whether anything is new."""

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, now_ms: float, value: float) -> None:
        """Take a sample in; the oldest makes room."""
        self._end(now_ms)
        self._samples.append((now_ms, value))
        self.added += 1

    def fresh(self, now_ms: float) -> list[float]:
        """The samples that have not grown old, in order of arrival."""
        self._end(now_ms)
        oldest = now_ms - self._horizon_ms
        while self._samples and self._samples[0][0] < oldest:
            self._samples.popleft()
        return [value for _, value in self._samples]

    def _end(self, now_ms: float) -> None:
        if self._samples and now_ms - self._samples[-1][0] > self._gap_ms:
            self._samples.clear()


class Memory:
    """Samples of one thing, those taken under load apart from the others.

    Under load everything takes longer, and that ends with the load: its samples come first while
    new ones come in, and are all gone within a second after.
    """

    def __init__(self, size: int = 256, horizon_ms: float = 60_000.0) -> None:
        self.calm = Window(size, horizon_ms)
        self.loaded = Window(size, _LOAD_MS, _GAP_MS)

    @property
    def added(self) -> int:
        """How many samples were ever added."""
        return self.calm.added + self.loaded.added

    def add(self, now_ms: float, value: float, *, loaded: bool = False) -> None:
        """Take a sample in."""
        (self.loaded if loaded else self.calm).add(now_ms, value)

    def fresh(self, now_ms: float) -> list[float]:
        """All that have not grown old."""
        return self.loaded.fresh(now_ms) + self.calm.fresh(now_ms)


class Blend:
    """Quantiles over what is known of one thing; while that is thin, of its kind, then the prior.

    `kind` remembers the samples of `own` too, among those of its likes. Sorting is the cost, so the
    order is kept until enough is new or `refresh_ms` went by.
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
        self._kind = kind or Memory()
        self._prior = list(prior)
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
        new = self.own.added - self._sorted_added
        if new >= self._refresh_samples or now_ms - self._sorted_at >= self._refresh_ms:
            self._sort(now_ms)
        ordered = self._calm if calm else self._ordered
        return quantile(ordered, q) if ordered else None

    def _sort(self, now_ms: float) -> None:
        own, kind = self.own, self._kind
        loaded = self._more([], own.loaded, kind.loaded, now_ms)
        self._calm = self._ready(self._more([], own.calm, kind.calm, now_ms))
        self._ordered = self._calm
        if loaded:
            self._ordered = self._ready(self._more(loaded, own.calm, kind.calm, now_ms))
        self._sorted_at = now_ms
        self._sorted_added = own.added

    def _more(self, samples: list[float], own: Window, kind: Window, now_ms: float) -> list[float]:
        """Add what is own, then what is of its kind, while there is not enough."""
        if len(samples) < self._enough:
            samples = samples + own.fresh(now_ms)
        if len(samples) < self._enough:
            samples = [*samples, *_others(own.fresh(now_ms), kind.fresh(now_ms))]
        return samples

    def _ready(self, samples: list[float]) -> list[float]:
        return sorted(samples if len(samples) >= self._enough else samples + self._prior)


def _others(own: list[float], kind: list[float]) -> Iterable[float]:
    """What the kind knows beyond the own samples: a slow run must not count twice."""
    return (Counter(kind) - Counter(own)).elements()
