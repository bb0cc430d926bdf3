"""Who is asked in turns: one request after the other, or as many as it can take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.driving.open_loop import closed_loop
from benchmarks.driving.wire import Client
from benchmarks.servers.processes import Server, ServerError

CLIENTS = 16


@dataclass(frozen=True)
class Pace:
    """How long everything takes."""

    rounds: int
    block_s: float
    block_requests: int
    capacity_s: float


@dataclass
class Entrant:
    """A server to be asked, and what it took each round."""

    name: str
    server: Server
    request: bytes
    rounds: list[list[float]] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)

    def ask(self, pace: Pace) -> None:
        """One block of requests, after some that do not count."""
        self.rounds.append([])
        with Client(self.server.port) as client:
            until = time.monotonic() + pace.block_s
            for _ in range(3):
                client.send(self.request)
            while time.monotonic() < until and len(self.rounds[-1]) < pace.block_requests:
                took, answer = client.time(self.request)
                if answer.status != 200:
                    raise ServerError(
                        f"{self.name} answered {answer.status}: {answer.body[:300]!r}"
                    )
                self.rounds[-1].append(took)
            if not self.rounds[-1]:
                self.rounds[-1].append(client.time(self.request)[0])


def take_turns(entrants: Sequence[Entrant], pace: Pace) -> None:
    """Rounds of blocks, every other one in reverse."""
    for number in range(pace.rounds):
        for entrant in entrants if number % 2 == 0 else reversed(entrants):
            entrant.ask(pace)


def throughput(entrants: Sequence[Entrant], pace: Pace) -> None:
    """What each gives when it always has something to do; twice there and back again."""
    for entrant in 2 * [*entrants, *reversed(entrants)]:
        cpu = entrant.server.cpu_s()
        samples, took = closed_loop(
            entrant.server.port, [entrant.request], clients=CLIENTS, seconds=pace.capacity_s / 2
        )
        cpu = entrant.server.cpu_s() - cpu
        answered = sum(sample.status == 200 for sample in samples)
        entrant.per_s.append(answered / took)
        entrant.cpu_ms.append(1e3 * cpu / max(1, answered))


def usual(entrant: Entrant) -> float:
    """Requests per second, the median of its samples."""
    return float(np.median(entrant.per_s))
