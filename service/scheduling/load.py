"""The work that is promised: who is in flight, until when, and what it will cost the engine.

A request is entered the moment its point is chosen, not when it reaches the engine, so a burst sees
itself coming. The questions asked here are those of earliest-deadline-first scheduling: how much
work goes before mine, and how much may I add without making a later deadline fail?
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from itertools import count

from san_core.frontier import OperatingPoint

_order = count()

_LINGERS_MS = 100.0
"""How long the service counts as loaded after it last was: runs that began then are still timed."""


@dataclass(slots=True, order=True)
class Promise:
    """One admitted request, as a claim on decoders and engine."""

    deadline_ms: float
    order: int = field(default_factory=lambda: next(_order))
    point: OperatingPoint = field(compare=False, kw_only=True)
    forward_ms: float = field(compare=False, kw_only=True)
    """What it adds to the engine's work: less than a run of its own if it joins a batch."""
    decode_ms: float = field(compare=False, kw_only=True)
    """What is left of its decoding; 0 once that is done."""
    running: bool = field(default=False, compare=False)


class Load:
    """All promises, earliest deadline first."""

    def __init__(self, decode_threads: int) -> None:
        self._decode_threads = decode_threads
        self._promises: list[Promise] = []
        self._per_point: dict[OperatingPoint, int] = {}
        self._running_since_ms = 0.0
        self._loaded_ms = float("-inf")
        self._refused_ms = float("-inf")

    def __len__(self) -> int:
        return len(self._promises)

    def knocked(self, now_ms: float) -> None:
        """Somebody came to the door, to be let in or not."""
        if len(self._promises) >= self._stations:
            self._loaded_ms = now_ms

    def turned_away(self, now_ms: float) -> None:
        """Somebody was refused because of the load: that is load too, even with nobody inside."""
        self._loaded_ms = self._refused_ms = now_ms

    def is_refusing(self, now_ms: float) -> bool:
        """Whether somebody was refused because of the load a moment ago."""
        return now_ms - self._refused_ms <= _LINGERS_MS

    def is_loaded(self, now_ms: float) -> bool:
        """Whether requests wait for one another, or did a moment ago.

        Times taken then hold for this load and not beyond it.
        """
        self._look(now_ms)
        return now_ms - self._loaded_ms <= _LINGERS_MS

    def _look(self, now_ms: float) -> None:
        if len(self._promises) > self._stations:
            self._loaded_ms = now_ms

    @property
    def _stations(self) -> int:
        """How many requests can be worked on at once: one in each decoder, one in the engine."""
        return self._decode_threads + 1

    def waiting_at(self, point: OperatingPoint) -> int:
        """How many requests at a point are yet to run: the batch one more would join."""
        return self._per_point.get(point, 0)

    def enter(self, promise: Promise) -> Promise:
        """Count a request from now on."""
        insort(self._promises, promise)
        self._per_point[promise.point] = self.waiting_at(promise.point) + 1
        return promise

    def leave(self, promise: Promise) -> None:
        """Forget a request that was answered, refused or abandoned; harmless if done twice."""
        if promise in self._promises:
            self._promises.remove(promise)
            if not promise.running:
                self._waits_no_more(promise.point)

    def decoded(self, promise: Promise) -> None:
        """Its pixels are there."""
        promise.decode_ms = 0.0

    def decoded_by_engine(self, promise: Promise) -> None:
        """Its decoding is the engine's work too."""
        promise.forward_ms += promise.decode_ms
        promise.decode_ms = 0.0

    def started(self, promises: list[Promise], now_ms: float) -> None:
        """These are the batch the engine runs now."""
        self._look(now_ms)
        self._running_since_ms = now_ms
        for promise in promises:
            if not promise.running:
                promise.running = True
                self._waits_no_more(promise.point)

    def _waits_no_more(self, point: OperatingPoint) -> None:
        left = self._per_point[point] - 1
        if left:
            self._per_point[point] = left
        else:
            del self._per_point[point]

    def engine_ahead_ms(self, deadline_ms: float, now_ms: float) -> float:
        """Engine work that goes before a request with this deadline.

        What runs cannot be interrupted, whatever its deadline.
        """
        running = waiting = 0.0
        for promise in self._promises:
            if promise.running:
                running += promise.forward_ms
            elif promise.deadline_ms <= deadline_ms:
                waiting += promise.forward_ms
        if running:
            running = max(0.0, running - (now_ms - self._running_since_ms))
        return running + waiting

    def decode_ahead_ms(self, deadline_ms: float) -> float:
        """How long the decoders are busy with requests that are due earlier."""
        ahead = sum(p.decode_ms for p in self._promises if p.deadline_ms <= deadline_ms)
        return ahead / self._decode_threads

    def slack_ms(self, deadline_ms: float, now_ms: float) -> float:
        """Engine time that may be put before the requests due later without making one late."""
        slack = float("inf")
        finish = now_ms
        for promise in self._promises:  # earliest deadline first
            finish += promise.forward_ms
            spare = promise.deadline_ms - finish
            # One that is late already cannot be made late.
            if promise.deadline_ms > deadline_ms and not promise.running and spare >= 0:
                slack = min(slack, spare)
        return slack

    def drain_ms(self, now_ms: float) -> float:
        """How long the work in flight keeps the service busy."""
        never = float("inf")
        return max(self.engine_ahead_ms(never, now_ms), self.decode_ahead_ms(never))
