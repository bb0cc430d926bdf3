"""Everything that is inside, and every question about load.

A request is entered the moment its body is there, so a burst sees itself coming. Requests are kept
in the order in which the engine should take them: first those whose client keeps to its share,
then by deadline.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp

from service.request.request import Request, State
from service.request.terms import OnMiss
from service.scheduling.tuning import TUNING


def urgency(request: Request) -> tuple[int, bool, float]:
    """The order of service."""
    return request.terms.priority, request.behind, request.due_ms


@dataclass(frozen=True, slots=True)
class Load:
    """What one request finds: a snapshot to decide by."""

    alone: bool = True
    running_ms: float = 0.0
    """What is left of the run that nothing interrupts."""
    engine_ms: float = 0.0
    """Engine work that goes before it, with what runs."""
    least_ms: float = 0.0
    """The same if load gave everyone who waits the floor."""
    decode_ms: float = 0.0
    """How long the decoders are busy with what goes before it."""
    waiting: int = 0
    """Images of its class that are inside and yet to run, its own left out."""
    spare_ms: float = 0.0
    """How long these may wait on average, as of now."""
    rate: float = 0.0
    """Images of its class expected per ms."""
    part: float = 1.0
    """Part of the engine's time that its class may have."""


@dataclass(slots=True)
class _Client:
    arrived: float = 0.0
    seen_ms: float = 0.0

    def rate(self, now_ms: float) -> float:
        """Images per ms."""
        return self.arrived * exp((self.seen_ms - now_ms) / TUNING.clients_ms) / TUNING.clients_ms


class Schedule:
    """All requests inside, most urgent first."""

    def __init__(self, decode_threads: int = 1, backlog: int = 8) -> None:
        self._decode_threads = decode_threads
        self._backlog = backlog
        self._inside: list[Request] = []
        self._running: list[Request] = []
        self._run_until_ms = 0.0
        self._refused_ms = float("-inf")
        self._seen_ms = 0.0
        self._busy_ms = 0.0
        self._arrived = 0.0
        self._clients: dict[str, _Client] = {}
        self._behind: frozenset[str] = frozenset()
        self._within = (0.0, 0.0)
        """(images per ms, part of the engine's time) of clients that keep to their share."""
        self._shared_out_ms = float("-inf")

    def __len__(self) -> int:
        return len(self._inside)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._inside)

    def arrived(self, request: Request, now_ms: float, unit_ms: float) -> None:
        """A request came, to be let in or not; the best point would cost `unit_ms` an image."""
        self._age(now_ms)
        taken = 1.0 if self._inside else 0.0
        for other in self._inside:
            other.joined = True
        self._arrived += taken * request.images
        client = self._clients.get(request.client)
        if client is None:
            if len(self._clients) > 1024:
                self._clients = {
                    k: c
                    for k, c in self._clients.items()
                    if now_ms - c.seen_ms < 5 * TUNING.clients_ms
                }
            client = self._clients[request.client] = _Client(seen_ms=now_ms)
        client.arrived = client.rate(now_ms) * TUNING.clients_ms + request.images
        client.seen_ms = now_ms
        if len(self._clients) > 1:
            self._share_out(now_ms, unit_ms)
            request.behind = request.client in self._behind

    def is_behind(self, client: str) -> bool:
        """Whether a client wants more than its share by now."""
        return client in self._behind

    def refused(self, now_ms: float) -> None:
        """A request was refused because of the load."""
        self._refused_ms = now_ms

    def wants_late(self, request: Request, now_ms: float) -> bool:
        """Whether to go on with a request whose deadline has passed in the queue.

        Behind a backlog, or while others are refused, it ends there whatever it asked for: working
        on what is late already makes others late. A request that was late from the start goes on,
        behind all that can be in time, but not for longer than the service's patience; one that
        named no budget is only ever ended for others.
        """
        if request.terms.on_miss is OnMiss.REFUSE:
            return False
        crowded = (
            len(self._inside) > self._backlog or now_ms - self._refused_ms <= TUNING.horizon_ms
        )
        if crowded and request.promised:
            return False
        if request.terms.budget_ms is None and not crowded:
            return True
        return now_ms <= request.due_ms + request.patience_ms

    def enter(self, request: Request, now_ms: float) -> None:
        """Count a request from now on."""
        self._age(now_ms)
        request.state = State.DECODING
        insort(self._inside, request, key=urgency)

    def leave(self, request: Request, now_ms: float) -> None:
        """Forget a request that was answered, refused or abandoned; harmless if done twice."""
        if request in self._running:
            self._running.remove(request)
        if request.state is not State.DONE and request in self._inside:
            self._age(now_ms)
            self._inside.remove(request)
        request.state = State.DONE

    def started(self, batch: list[Request], until_ms: float) -> None:
        """The engine runs these, after what it runs already, presumably until then."""
        self._running += batch
        self._run_until_ms = until_ms
        for request in batch:
            request.state = State.RUNNING

    def running_ms(self, now_ms: float) -> float:
        """How long what runs will presumably take."""
        return max(0.0, self._run_until_ms - now_ms) if self._running else 0.0

    @property
    def decoding(self) -> int:
        """How many requests are on their way to the engine."""
        return sum(request.state is State.DECODING for request in self._inside)

    @property
    def busy(self) -> int:
        """How many requests keep the engine and the decoders busy.

        Those that helpers decode, or the thread for large JPEGs, do not.
        """
        return sum(
            not (request.decoded_apart and request.state is State.DECODING)
            for request in self._inside
        )

    @property
    def rate(self) -> float:
        """Images per ms that arrive while there is work: what a run makes wait."""
        return self._arrived / (self._busy_ms + TUNING.settle_ms)

    def load(self, request: Request, now_ms: float) -> Load:
        """What this request finds, whether it is inside or not."""
        inside, running = self._inside, self.running_ms(now_ms)
        if not inside or (len(inside) == 1 and inside[0] is request):
            # What may run is the service's own work.
            return Load(running_ms=running, rate=self.rate)
        first = bisect_right(inside, urgency(request), key=urgency)
        engine = least = decode = spare = 0.0
        waiting, behind = 0, request.behind
        for place, other in enumerate(inside):
            if other is request or other.state is State.RUNNING:
                continue
            if place < first:
                engine += other.work_ms
                least += other.least_ms
                decode += other.decode_ms
            if other.behind == behind:
                waiting += other.images
                if other.due_ms > now_ms:
                    spare += other.images * (other.due_ms - now_ms)
        rate, part = self.rate, 1.0
        if self._behind:
            rate_within, part_within = self._within
            rate, part = (
                (max(0.0, rate - rate_within), 1.0 - part_within)
                if request.behind
                else (min(rate, rate_within), 1.0)
            )
        return Load(
            False,
            running,
            running + engine,
            running + least,
            decode / self._decode_threads,
            waiting,
            spare / waiting if waiting else 0.0,
            rate,
            part,
        )

    def idle_ms(self, now_ms: float) -> float:
        """For how long nothing has come or gone; 0 while anything is inside."""
        return 0.0 if self._inside else now_ms - self._seen_ms

    def drain_ms(self, now_ms: float) -> float:
        """How long the work inside keeps the service busy."""
        left = [r for r in self._inside if r.state is not State.RUNNING]
        decode = sum(r.decode_ms for r in left) / self._decode_threads
        return max(self.running_ms(now_ms) + sum(r.work_ms for r in left), decode)

    def _age(self, now_ms: float) -> None:
        """Forget a little of the past; only time with work counts for the rate."""
        gone = now_ms - self._seen_ms
        if gone <= 0:
            return
        self._seen_ms = now_ms
        if self._inside:
            keep = exp(-gone / TUNING.memory_ms)
            self._busy_ms = self._busy_ms * keep + gone
            self._arrived *= keep
        else:
            self._arrived *= exp(-gone / TUNING.idle_memory_ms)

    def _share_out(self, now_ms: float, unit_ms: float) -> None:
        """Max-min fair shares: clients that want less than an equal part have it.

        The others share the rest and stand behind.
        """
        if now_ms - self._shared_out_ms < TUNING.clients_ms / 25:
            return
        self._shared_out_ms = now_ms
        wanted = sorted((c.rate(now_ms) * unit_ms, name) for name, c in self._clients.items())
        left = TUNING.usable
        rate = part = 0.0
        for place, (wants, _) in enumerate(wanted):
            if wants > left / (len(wanted) - place):
                self._behind = frozenset(name for _, name in wanted[place:])
                self._within = rate, part
                # What such a client sent before it was known as one must not go first either.
                for request in self._inside:
                    request.behind = request.behind or request.client in self._behind
                self._inside.sort(key=urgency)
                return
            left -= wants
            part += wants
            rate += wants / unit_ms
        self._behind = frozenset()
