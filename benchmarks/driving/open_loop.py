"""Driving a server with many connections: open loop (arrivals never wait) and closed loop.

One process, one event loop, no HTTP library. A request's latency counts from when it was due, so
what waits in this process, or in a server's backlog, counts as waiting. Connections are kept and
reused; when none is idle another is opened, as many users would. A client gives up after a while
and hangs up, as users do.
"""

from __future__ import annotations

import asyncio
import itertools
import resource
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import uvloop

from benchmarks.driving.wire import Answer, parse, tune

GAVE_UP = 0
"""Status of a request whose client hung up before an answer."""
BROKEN = -1
"""Status of a request whose connection broke."""


@dataclass(slots=True)
class Sample:
    """What became of one request."""

    due: float
    """Seconds from the start of the run."""
    latency_ms: float
    status: int
    lag_ms: float
    """How late this process sent it."""
    answer: Answer | None

    def on_time(self, budget_ms: float) -> bool:
        """Whether the client had a result within the budget."""
        return self.status == 200 and self.latency_ms <= budget_ms


class _Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, done: Callable[[_Connection, int, Answer | None], None]) -> None:
        self._done = done
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        tune(transport.get_extra_info("socket"))
        self._transport = transport  # type: ignore[assignment]

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self.busy = True
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if not self.busy:
            return
        self._buffer += data
        answer = parse(self._buffer)
        if answer is not None:
            self._buffer.clear()
            self.busy = False
            if answer.closes:
                self.hang_up()
            self._done(self, answer.status, answer)

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        if self.busy:
            self.busy = False
            self._done(self, BROKEN, None)

    def hang_up(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()


class _Run:
    """The state of one run against one port."""

    def __init__(self, port: int, give_up_s: float, source: str = "127.0.0.1") -> None:
        self.samples: list[Sample] = []
        self._port = port
        self._source = source
        self._give_up_s = give_up_s
        self._idle: list[_Connection] = []
        self._waiting: dict[_Connection, tuple[float, float]] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._zero = time.perf_counter()
        self.on_done: Callable[[], None] = lambda: None

    def now(self) -> float:
        return time.perf_counter() - self._zero

    def fire(self, due: float, request: bytes) -> None:
        """Send a request on an idle connection, or on a new one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                self._send(connection, due, request)
                return
        task = asyncio.get_running_loop().create_task(self._open(due, request))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, due: float, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._give_up_s):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self._finished),
                    "127.0.0.1",
                    self._port,
                    local_addr=(self._source, 0),
                )
        except TimeoutError:
            self._record(due, self.now(), GAVE_UP, None)
        except OSError:
            self._record(due, self.now(), BROKEN, None)
        else:
            self._send(connection, due, request)

    def _send(self, connection: _Connection, due: float, request: bytes) -> None:
        self._waiting[connection] = (due, self.now())
        connection.send(request)

    def _finished(self, connection: _Connection, status: int, answer: Answer | None) -> None:
        due, sent = self._waiting.pop(connection, (self.now(), self.now()))
        if status != BROKEN:
            self._idle.append(connection)
        self._record(due, sent, status, answer)

    def _record(self, due: float, sent: float, status: int, answer: Answer | None) -> None:
        latency = (self.now() - due) * 1e3
        self.samples.append(Sample(due, latency, status, (sent - due) * 1e3, answer))
        self.on_done()

    def sweep(self) -> None:
        """Hang up on whoever waited too long."""
        limit = self.now() - self._give_up_s
        for connection in [c for c, (due, _) in self._waiting.items() if due < limit]:
            due, sent = self._waiting.pop(connection)
            connection.busy = False
            connection.hang_up()
            self._record(due, sent, GAVE_UP, None)

    @property
    def pending(self) -> int:
        return len(self._waiting) + len(self._opening)

    def close(self) -> None:
        for connection in [*self._idle, *self._waiting]:
            connection.busy = False
            connection.hang_up()
        for task in self._opening:
            task.cancel()


async def _until_done(run: _Run, tick: Callable[[], None]) -> None:
    while run.pending:
        await asyncio.sleep(0.02)
        run.sweep()
        tick()


async def _open_loop(
    port: int,
    times: Sequence[float],
    requests: Iterator[bytes],
    give_up_s: float,
    tick: Callable[[], None],
    source: str,
) -> list[Sample]:
    run = _Run(port, give_up_s, source)
    try:
        remaining = deque(times)
        while remaining:
            now = run.now()
            while remaining and remaining[0] <= now:
                run.fire(remaining.popleft(), next(requests))
            run.sweep()
            tick()
            if remaining:
                await asyncio.sleep(min(max(remaining[0] - run.now(), 0.0), 0.05))
        await _until_done(run, tick)
    finally:
        run.close()
    return run.samples


async def _closed_loop(
    port: int,
    clients: int,
    requests: Iterator[bytes],
    seconds: float,
    count: int | None,
    give_up_s: float,
    tick: Callable[[], None],
) -> tuple[list[Sample], float]:
    run = _Run(port, give_up_s)
    fired = 0

    def again() -> None:
        nonlocal fired
        if run.now() < seconds and (count is None or fired < count):
            fired += 1
            run.fire(run.now(), next(requests))

    run.on_done = again
    try:
        for _ in range(clients):
            again()
        await _until_done(run, tick)
        took = run.now()
    finally:
        run.close()
    return run.samples, took


def _go(main: Any) -> Any:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def _cycle(requests: Sequence[bytes] | Iterator[bytes]) -> Iterator[bytes]:
    return itertools.cycle(requests) if isinstance(requests, Sequence) else requests


def open_loop(
    port: int,
    times: Sequence[float],
    requests: Sequence[bytes] | Iterator[bytes],
    *,
    give_up_s: float = 1.0,
    tick: Callable[[], None] = lambda: None,
    source: str = "127.0.0.1",
) -> list[Sample]:
    """Send a request at each time, whatever became of those before it, from an address."""
    found: list[Sample] = _go(_open_loop(port, times, _cycle(requests), give_up_s, tick, source))
    return found


def closed_loop(
    port: int,
    requests: Sequence[bytes] | Iterator[bytes],
    *,
    clients: int,
    seconds: float,
    count: int | None = None,
    give_up_s: float = 10.0,
    tick: Callable[[], None] = lambda: None,
) -> tuple[list[Sample], float]:
    """Keep so many requests in flight for so long; returns the samples and the seconds taken."""
    found: tuple[list[Sample], float] = _go(
        _closed_loop(port, clients, _cycle(requests), seconds, count, give_up_s, tick)
    )
    return found


def capacity(
    port: int, requests: Sequence[bytes], *, clients: int = 16, seconds: float = 3.0
) -> float:
    """Results per second that a server gives when it always has something to do."""
    samples, took = closed_loop(port, requests, clients=clients, seconds=seconds)
    return sum(sample.status == 200 for sample in samples) / took
