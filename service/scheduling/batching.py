"""Which requests run next, together: earliest deadline first, one operating point per batch.

Pure: the queue is told the time and the predicted run times and answers with a plan. `engine_loop`
carries plans out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from san_core.frontier import OperatingPoint

RunTime = Callable[[OperatingPoint, int], float]
"""(point, batch size) -> how long a run takes, in ms."""


_MARGIN = 1.5
"""By how much a batch may take longer than predicted: it keeps everybody waiting, and the first
batches of a burst run slower than any before them."""

_HANDOVER_MS = 1.0
"""What a batch costs beside its run: until the engine has the next one, and finds its caches cold.
Seen under load on two cores: 1 ms after a single image, 2 to 3 ms after eight."""


@dataclass(slots=True, eq=False)
class Entry:
    """One decoded request that waits for the engine."""

    point: OperatingPoint
    deadline_ms: float
    joined_ms: float
    answer_late: Callable[[], bool]
    """Whether an answer after the deadline is still wanted; asked when it comes to that."""
    cargo: Any = None
    """What the executor needs; the queue never looks at it."""
    abandoned: bool = False
    """The client is gone."""


@dataclass(slots=True)
class Plan:
    """What to do now."""

    run: list[Entry] = field(default_factory=list)
    """Run these as one batch; none: there is nothing to run yet."""
    expired: list[Entry] = field(default_factory=list)
    """Refuse these: they would be late, and a late answer is not wanted."""
    wake_ms: float | None = None
    """Look again at this time: until then waiting for company costs no deadline."""


class BatchQueue:
    """Entries per operating point, and the rule by which they leave."""

    def __init__(self, max_batch: int, window_ms: float) -> None:
        self._max_batch = max_batch
        self._window_ms = window_ms
        self._entries: dict[OperatingPoint, list[Entry]] = {}

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._entries.values())

    def add(self, entry: Entry) -> None:
        """Let an entry wait."""
        self._entries.setdefault(entry.point, []).append(entry)

    def plan(
        self,
        now_ms: float,
        idle_since_ms: float,
        run_time: RunTime,
        coming: Callable[[OperatingPoint], int] = lambda _: 0,
    ) -> Plan:
        """Decide what the idle engine does now.

        `coming(point)` tells how many more requests for a point are being decoded at this moment.
        """
        plan = Plan()
        self._sweep(now_ms, run_time, plan)
        if not self._entries:
            return plan
        point, batch = self._most_urgent(now_ms, run_time)
        batch = self._grown(point, batch, now_ms, run_time)
        plan.wake_ms = self._worth_waiting(point, batch, now_ms, idle_since_ms, run_time, coming)
        if plan.wake_ms is None:
            plan.run = batch
            self._remove(point, batch)
        return plan

    def _sweep(self, now_ms: float, run_time: RunTime, plan: Plan) -> None:
        """Drop who left, refuse who would be late, and order the rest by urgency."""
        for point in list(self._entries):
            soonest = now_ms + run_time(point, 1)
            kept = []
            for entry in self._entries[point]:
                if entry.abandoned:
                    continue
                if soonest > entry.deadline_ms and not entry.answer_late():
                    plan.expired.append(entry)
                else:
                    kept.append(entry)
            if kept:
                # Who is late anyway waits behind everyone who can still be in time.
                kept.sort(key=lambda e: (soonest > e.deadline_ms, e.deadline_ms))
                self._entries[point] = kept
            else:
                del self._entries[point]

    def _most_urgent(self, now_ms: float, run_time: RunTime) -> tuple[OperatingPoint, list[Entry]]:
        def urgency(point: OperatingPoint) -> tuple[bool, float]:
            head = self._entries[point][0]
            return now_ms + run_time(point, 1) > head.deadline_ms, head.deadline_ms

        point = (
            min(self._entries, key=urgency) if len(self._entries) > 1 else next(iter(self._entries))
        )
        return point, self._entries[point]

    def _grown(
        self, point: OperatingPoint, waiting: list[Entry], now_ms: float, run_time: RunTime
    ) -> list[Entry]:
        """Take in as many as get the most done, and keep the tightest deadline here and elsewhere.

        Two together may take longer than one after the other.
        """
        if len(waiting) == 1:
            return waiting
        limit = self._tightest(waiting[:1], now_ms, run_time(point, 1))
        for other, entries in self._entries.items():
            if other != point:
                head = entries[0].deadline_ms - run_time(other, 1)
                if head >= now_ms + run_time(point, 1):  # else it is late whatever happens here
                    limit = min(limit, head)
        best, quickest = 1, run_time(point, 1) + _HANDOVER_MS
        for size in range(2, min(self._max_batch, len(waiting)) + 1):
            together = run_time(point, size)
            if now_ms + _MARGIN * together > limit:
                break
            each = (together + _HANDOVER_MS) / size
            if each <= quickest:
                best, quickest = size, each
        return waiting[:best]

    @staticmethod
    def _tightest(batch: Iterable[Entry], now_ms: float, alone_ms: float) -> float:
        """The earliest deadline that can still be met; whoever is late already holds nobody up."""
        deadlines = [e.deadline_ms for e in batch if now_ms + alone_ms <= e.deadline_ms]
        return min(deadlines, default=float("inf"))

    def _worth_waiting(
        self,
        point: OperatingPoint,
        batch: list[Entry],
        now_ms: float,
        idle_since_ms: float,
        run_time: RunTime,
        coming: Callable[[OperatingPoint], int],
    ) -> float | None:
        """Until when the batch may stay open; None: run it now.

        Worth it only if company is on its way, no other point waits, and no longer than the time
        that running together saves. A batch closes when waiting longer would break the tightest
        deadline in it.
        """
        size = len(batch)
        if self._window_ms <= 0 or size >= self._max_batch or not coming(point):
            return None
        if len(self._entries) > 1 or len(self._entries[point]) > size:
            return None
        saved = run_time(point, size) + run_time(point, 1) - run_time(point, size + 1)
        opened = max(idle_since_ms, min(e.joined_ms for e in batch))
        tightest = self._tightest(batch, now_ms, run_time(point, 1))
        until = min(opened + min(self._window_ms, saved), tightest - run_time(point, size + 1))
        return until if until > now_ms else None

    def _remove(self, point: OperatingPoint, batch: list[Entry]) -> None:
        left = self._entries[point][len(batch) :]
        if left:
            self._entries[point] = left
        else:
            del self._entries[point]
