"""Main networks that are ready to run, bounded in bytes and in number, built once per point.

Lives on the event loop; only `build` runs elsewhere. However many requests wait for a point there
is one build, and a client that gives up does not cancel it for the others.

Some points are protected: those the policy chooses among. What clients pin beside them lives in a
share of its own, the least recently used out first, and never takes a protected point's place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from cachetools import LRUCache

from san_core.frontier import OperatingPoint
from service.engines.base import RunnableNetwork
from service.errors import EngineFullError
from service.runtime.clock import Clock
from service.runtime.thread_pool import Workers

logger = logging.getLogger(__name__)

_GUEST_SHARE = 4
"""A quarter of the cache is for points that are not protected."""
DEMAND, BACKGROUND = 0.0, 1.0
"""Urgencies: a network that a request waits for is built before one that is only warmed up."""


@dataclass
class CacheFacts:
    """What happened in the cache so far."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    builds: int = 0
    failures: int = 0
    build_ms: float = 0.0
    """Total time spent building."""


@dataclass
class CachedNetwork:
    """What is known of one ready network."""

    point: OperatingPoint
    memory_bytes: int
    made_ms: float
    """When it became ready, on the cache's clock."""
    build_ms: float | None
    """How long generating it took; None if it was built elsewhere and adopted."""
    hits: int = 0


class _Store(LRUCache[OperatingPoint, RunnableNetwork]):
    """An LRU by bytes and number that counts what it evicts."""

    def __init__(self, capacity: int, most: int, facts: CacheFacts) -> None:
        super().__init__(capacity, getsizeof=lambda network: network.memory_bytes)
        self._facts = facts
        self._most = most

    def has_room_for(self, size: int) -> bool:
        return len(self) < self._most and self.currsize + size <= self.maxsize

    def keep(self, network: RunnableNetwork) -> None:
        self[network.point] = network
        while len(self) > self._most:
            self.popitem()

    def popitem(self) -> tuple[OperatingPoint, RunnableNetwork]:
        self._facts.evictions += 1
        return super().popitem()


def _told(task: asyncio.Task[RunnableNetwork]) -> None:
    """Log a failed build here: perhaps no request waits for it."""
    if not task.cancelled() and (error := task.exception()):
        logger.error("%s failed", task.get_name(), exc_info=error)


def _closed(point: OperatingPoint) -> RunnableNetwork:
    raise RuntimeError(f"{point} was asked of a cache that is closed")


class WeightCache:
    """Ready networks by operating point, least recently used out first."""

    def __init__(
        self,
        build: Callable[[OperatingPoint], RunnableNetwork],
        workers: Workers,
        *,
        capacity_bytes: int,
        max_networks: int,
        clock: Clock,
        on_built: Callable[[OperatingPoint, float], None] = lambda *_: None,
    ) -> None:
        self.facts = CacheFacts()
        self._build = build
        self._workers = workers
        self._clock = clock
        self._on_built = on_built
        self._max_networks = max_networks
        self.capacity_bytes = capacity_bytes
        """Bytes that the networks may occupy; `enlarge` lets them take more."""
        self._protected: frozenset[OperatingPoint] | None = None
        self._store = self._guests = _Store(capacity_bytes, max_networks, self.facts)
        """Protected points, and the others; the same until points are protected."""
        self._stores: tuple[_Store, ...] = (self._store,)
        self._entries: dict[OperatingPoint, CachedNetwork] = {}
        self._sizes: dict[OperatingPoint, int] = {}
        """Bytes of every network that was ever kept, or found too large for it."""
        self._most_bytes: int | None = None
        """What was held when the device was found full: less than the cache may take."""
        self._unwanted: set[OperatingPoint] = set()
        """On their way, but evicted already."""
        self._building: dict[OperatingPoint, asyncio.Task[RunnableNetwork]] = {}

    def protect(self, points: Iterable[OperatingPoint]) -> None:
        """Keep these points whatever clients pin; the others share the rest."""
        self._protected = frozenset(points)
        self._divide()

    def enlarge(self, capacity_bytes: int) -> None:
        """Let the networks occupy more."""
        self._most_bytes = None
        if capacity_bytes > self.capacity_bytes:
            self.capacity_bytes = capacity_bytes
            self._divide()

    def _divide(self) -> None:
        """Share out the capacity, and put every network into its store."""
        ready = [store[point] for store in self._stores for point in tuple(store)]
        size, most = self.capacity_bytes, self._max_networks
        if self._protected is None:
            self._store = self._guests = _Store(size, most, self.facts)
            self._stores = (self._store,)
        else:
            guest_size, guest_most = size // _GUEST_SHARE, max(1, most // _GUEST_SHARE)
            self._store = _Store(size - guest_size, max(1, most - guest_most), self.facts)
            self._guests = _Store(guest_size, guest_most, self.facts)
            self._stores = (self._store, self._guests)
        for network in ready:
            self._home(network.point).keep(network)

    def is_protected(self, point: OperatingPoint) -> bool:
        """Whether no client's pin can take the point's place."""
        return self._protected is None or point in self._protected

    def _home(self, point: OperatingPoint) -> _Store:
        return self._store if self.is_protected(point) else self._guests

    def __contains__(self, point: object) -> bool:
        return point in self._store or point in self._guests

    def __len__(self) -> int:
        return sum(map(len, self._stores))

    @property
    def bytes(self) -> int:
        """Bytes that the cached networks occupy."""
        return sum(int(store.currsize) for store in self._stores)

    @property
    def guest_builds(self) -> int:
        """How many points that are not protected are on their way."""
        return sum(not self.is_protected(point) for point in self._building)

    def points(self) -> tuple[OperatingPoint, ...]:
        """What is ready."""
        return tuple(point for store in self._stores for point in store)

    def entries(self) -> tuple[CachedNetwork, ...]:
        """What is known of each ready network, least recently used first."""
        return tuple(self._entries[point] for point in self.points())

    def is_building(self, point: OperatingPoint) -> bool:
        """Whether the point is on its way."""
        return point in self._building

    def building(self) -> tuple[OperatingPoint, ...]:
        """What is on its way and will be kept."""
        return tuple(point for point in self._building if point not in self._unwanted)

    def has_room_for(self, point: OperatingPoint) -> bool:
        """Whether nothing has to go for it; yes if its size is not known, which it then will be."""
        size = self._sizes.get(point, 0)
        if self._most_bytes is not None and self.bytes + size > self._most_bytes:
            return False
        return self._home(point).has_room_for(size)

    def peek(self, point: OperatingPoint) -> RunnableNetwork | None:
        """The network if it is cached; does not count as a use."""
        return next((store.get(point) for store in self._stores if point in store), None)

    def ready(self, point: OperatingPoint) -> RunnableNetwork | None:
        """The network if it is cached; counts as a use."""
        network = self._home(point).get(point)
        if network is None:
            self.facts.misses += 1
        else:
            self.facts.hits += 1
            self._entries[point].hits += 1
        return network

    def request(
        self, point: OperatingPoint, urgency: float = DEMAND
    ) -> asyncio.Future[RunnableNetwork]:
        """Start building the point unless it is being built; await the result shielded."""
        self._unwanted.discard(point)
        task = self._building.get(point)
        if task is None:
            task = asyncio.create_task(self._make(point, urgency), name=f"build {point}")
            task.add_done_callback(_told)
            self._building[point] = task
        return task

    async def get(self, point: OperatingPoint) -> tuple[RunnableNetwork, bool]:
        """The network, and whether it was cached."""
        network = self.ready(point)
        if network is not None:
            return network, True
        return await asyncio.shield(self.request(point)), False

    async def warm(self, points: Iterable[OperatingPoint]) -> None:
        """Build the missing points one by one, after those that a request waits for."""
        for point in points:
            if point in self:
                continue
            with suppress(Exception):  # logged where it happened; the others are worth a try
                await asyncio.shield(self.request(point, BACKGROUND))

    def evict(self, point: OperatingPoint) -> bool:
        """Drop a network, ready or on its way; requests that hold it or wait finish with it."""
        on_its_way = point in self._building
        if on_its_way:
            self._unwanted.add(point)
        return self._home(point).pop(point, None) is not None or on_its_way

    def drop_guests(self) -> None:
        """Drop what clients pinned: memory is needed for something else."""
        if self._guests is not self._store:
            while self._guests:
                self._guests.popitem()

    async def close(self) -> None:
        """Stop building and forget everything."""
        tasks = list(self._building.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for store in self._stores:
            store.clear()
        # Both lead back to the deployment, whose first one no garbage collection looks at.
        self._build, self._on_built = _closed, lambda *_: None

    async def _make(self, point: OperatingPoint, urgency: float) -> RunnableNetwork:
        try:
            try:
                network, took_ms = await self._workers.submit(lambda: self._timed(point), urgency)
            except EngineFullError as error:
                logger.warning("%s Half of the networks are evicted.", error)
                self._make_room()
                network, took_ms = await self._workers.submit(lambda: self._timed(point), urgency)
        except asyncio.CancelledError:
            raise
        except Exception:
            self.facts.failures += 1
            raise
        finally:
            self._building.pop(point, None)
            wanted = point not in self._unwanted
            self._unwanted.discard(point)
        self.facts.builds += 1
        self.facts.build_ms += took_ms
        if wanted:
            self.adopt(network, took_ms)
        self._on_built(point, took_ms)
        return network

    def _make_room(self) -> None:
        """Drop the least recently used half.

        What was held is remembered: built again unasked, it would fill the device again.
        """
        self._most_bytes = self.bytes
        for store in self._stores:
            for _ in range((len(store) + 1) // 2):
                store.popitem()

    def _timed(self, point: OperatingPoint) -> tuple[RunnableNetwork, float]:
        begun = self._clock()
        network = self._build(point)
        return network, self._clock() - begun

    def adopt(self, network: RunnableNetwork, build_ms: float | None = None) -> None:
        """Take in a network; without `build_ms` it was built elsewhere."""
        self._sizes[network.point] = network.memory_bytes
        store = self._home(network.point)
        if network.memory_bytes > store.maxsize:
            logger.warning(
                "weights of %s (%d bytes) exceed their part of the cache (%d bytes): they are "
                "built for each use",
                network.point,
                network.memory_bytes,
                store.maxsize,
            )
            return
        store.keep(network)
        made = CachedNetwork(network.point, network.memory_bytes, self._clock(), build_ms)
        self._entries = {
            point: made if point == network.point else self._entries[point]
            for point in self.points()
            if point == network.point or point in self._entries
        }
