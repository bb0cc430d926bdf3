"""Main networks that are ready to run, bounded in bytes and in number, built once per point.

Lives on the event loop; only `build` runs elsewhere. However many requests wait for a point there
is one build, and a client that gives up does not cancel it for the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache

from san_core.frontier import OperatingPoint
from service.engines.base import RunnableNetwork
from service.runtime.clock import Clock
from service.runtime.thread_pool import Workers

logger = logging.getLogger(__name__)

DEMAND, BACKGROUND = 0.0, 1.0
"""Urgencies: what a request waits for is built before what is only warmed up."""


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
    """An LRU by bytes that counts what it evicts."""

    def __init__(self, capacity: int, facts: CacheFacts) -> None:
        super().__init__(capacity, getsizeof=lambda network: network.memory_bytes)
        self._facts = facts

    def popitem(self) -> tuple[OperatingPoint, RunnableNetwork]:
        self._facts.evictions += 1
        return super().popitem()


def _told(task: asyncio.Task[RunnableNetwork]) -> None:
    """Log a failed build here: it may be that nobody waits for it."""
    if not task.cancelled() and (error := task.exception()):
        logger.error("%s failed", task.get_name(), exc_info=error)


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
        self._store = _Store(capacity_bytes, self.facts)
        self._entries: dict[OperatingPoint, CachedNetwork] = {}
        self._sizes: dict[OperatingPoint, int] = {}
        """Bytes of every network that was ever kept, or found too large for it."""
        self._unwanted: set[OperatingPoint] = set()
        """On their way, but evicted already."""
        self._building: dict[OperatingPoint, asyncio.Task[RunnableNetwork]] = {}

    def __contains__(self, point: object) -> bool:
        return point in self._store

    def __len__(self) -> int:
        return len(self._store)

    @property
    def bytes(self) -> int:
        """Bytes that the cached networks occupy."""
        return int(self._store.currsize)

    @property
    def capacity_bytes(self) -> int:
        """Bytes that they may occupy."""
        return int(self._store.maxsize)

    def points(self) -> tuple[OperatingPoint, ...]:
        """What is ready."""
        return tuple(self._store)

    def entries(self) -> tuple[CachedNetwork, ...]:
        """What is known of each ready network, least recently used first."""
        return tuple(self._entries[point] for point in self._store)

    def is_building(self, point: OperatingPoint) -> bool:
        """Whether the point is on its way."""
        return point in self._building

    def building(self) -> tuple[OperatingPoint, ...]:
        """What is on its way and will be kept."""
        return tuple(point for point in self._building if point not in self._unwanted)

    def has_room_for(self, point: OperatingPoint) -> bool:
        """Whether nothing has to go for it; yes if its size is not known, which it then will be."""
        size = self._sizes.get(point, 0)
        return len(self) < self._max_networks and self.bytes + size <= self.capacity_bytes

    def ready(self, point: OperatingPoint) -> RunnableNetwork | None:
        """The network if it is cached; counts as a use."""
        network = self._store.get(point)
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
        """Build what is missing, one after the other, behind anything a request waits for."""
        for point in points:
            if point in self._store:
                continue
            with suppress(Exception):  # logged where it happened; the others are worth a try
                await asyncio.shield(self.request(point, BACKGROUND))

    def evict(self, point: OperatingPoint) -> bool:
        """Drop a network, ready or on its way; requests that hold it or wait finish with it."""
        on_its_way = point in self._building
        if on_its_way:
            self._unwanted.add(point)
        return self._store.pop(point, None) is not None or on_its_way

    def adopt(self, network: RunnableNetwork) -> None:
        """Take in a network that was built elsewhere."""
        self._keep(network)

    async def close(self) -> None:
        """Stop building and forget everything."""
        tasks = list(self._building.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._store.clear()

    async def _make(self, point: OperatingPoint, urgency: float) -> RunnableNetwork:
        try:
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
            self._keep(network, took_ms)
        self._on_built(point, took_ms)
        return network

    def _timed(self, point: OperatingPoint) -> tuple[RunnableNetwork, float]:
        begun = self._clock()
        network = self._build(point)
        return network, self._clock() - begun

    def _keep(self, network: RunnableNetwork, build_ms: float | None = None) -> None:
        self._sizes[network.point] = network.memory_bytes
        if network.memory_bytes > self._store.maxsize:
            logger.warning(
                "weights of %s (%d bytes) exceed the cache (%d bytes): they are built for each use",
                network.point,
                network.memory_bytes,
                self.capacity_bytes,
            )
            return
        self._store[network.point] = network
        while len(self._store) > self._max_networks:
            self._store.popitem()
        made = CachedNetwork(network.point, network.memory_bytes, self._clock(), build_ms)
        self._entries = {
            point: made if point == network.point else self._entries[point] for point in self._store
        }

    def snapshot(self) -> dict[str, Any]:
        """The facts and the sizes, for export."""
        return {
            **vars(self.facts),
            "networks": len(self._store),
            "bytes": self.bytes,
            "capacity_bytes": self.capacity_bytes,
        }
