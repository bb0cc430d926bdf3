"""Threads that take the most urgent job first and hand results back to the event loop."""

from __future__ import annotations

import asyncio
import heapq
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Job(Generic[T]):
    __slots__ = ("function", "future", "loop")

    def __init__(self, function: Callable[[], T]) -> None:
        self.function = function
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()

    def run(self) -> None:
        if self.future.cancelled():  # read only: cancelling happens on the loop
            return
        try:
            result = self.function()
        except BaseException as error:
            self._hand_back(self._fail, error)
        else:
            self._hand_back(self._succeed, result)

    def _hand_back(self, settle: Callable[[Any], None], value: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            self.loop.call_soon_threadsafe(settle, value)

    def _succeed(self, result: T) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Workers:
    """Threads over one priority queue."""

    def __init__(self, name: str, threads: int, *, nice: int = 0) -> None:
        self._heap: list[tuple[float, int, _Job[Any]]] = []
        self._order = count()
        self._wake: SimpleQueue[bool] = SimpleQueue()
        """True for every job on the heap, then False for every thread."""
        self._closed = False
        self._nice = nice
        self._begun: dict[int, float] = {}
        """When each thread that works began its job."""
        self._name = name
        self._threads: list[threading.Thread] = []
        self.grow(threads)

    def grow(self, threads: int) -> None:
        """Start threads until there are at least this many."""
        for number in range(len(self._threads), threads):
            name = f"{self._name}-{number}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def submit(self, function: Callable[[], T], urgency: float = 0.0) -> asyncio.Future[T]:
        """Run `function` on a thread; the smallest urgency (a deadline, say) goes first.

        Cancelling the future before it runs costs nothing.
        """
        if self._closed:
            raise RuntimeError("these workers are closed")
        job = _Job(function)
        # One step for the interpreter, as are the queue's: a condition would take several.
        heapq.heappush(self._heap, (urgency, next(self._order), job))
        self._wake.put(True)
        return job.future

    def longest_s(self) -> float:
        """For how long the job that runs longest has been running."""
        return time.monotonic() - min(list(self._begun.values()), default=time.monotonic())

    def close(self) -> None:
        """Finish the jobs that are queued and stop."""
        self._closed = True
        for _ in self._threads:
            self._wake.put(False)
        for thread in self._threads:
            thread.join(timeout=10)

    def _work(self) -> None:
        if self._nice:
            with suppress(OSError, AttributeError):  # Linux lets a thread be nice on its own
                # Root could make it less nice than the process: `nice -n 10 san serve`.
                niceness = max(self._nice, os.getpriority(os.PRIO_PROCESS, 0))
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
        while self._wake.get():
            job = heapq.heappop(self._heap)[2]
            self._begun[threading.get_ident()] = time.monotonic()
            job.run()
            del self._begun[threading.get_ident()]
            del job  # an idle worker must not keep the last image alive
