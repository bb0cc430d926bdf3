"""What every point costs of late: tables of costs, made anew as traffic teaches.

Besides what the latency model learns, costs hang on what decoding takes, and on how long whole
cycles of a crowded service take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from san_core.frontier import OperatingPoint
from service.latency.catalogue import Listing
from service.latency.model import ASSUMED, LatencyModel
from service.latency.quantiles import Factor
from service.request.request import Request
from service.scheduling.dispatching import Plan
from service.scheduling.pricing import CostTable, Host, beside_ms, make_table
from service.scheduling.tuning import TUNING

_ORDINARY_MS = 2000.0
"""Images that are decoded apart count if no other came for so long: a client that sends large ones
must not make those of others look expensive."""
_REFRESH_MS = 50.0
"""How long a table of costs holds: the pace changes by a few percent in that time."""


class Costing:
    """Keeps the tables of costs of one deployment."""

    def __init__(
        self, model: LatencyModel, frontier: Sequence[Listing], host: Host, max_batch: int
    ) -> None:
        self.frontier = frontier
        self._model = model
        self._host = host
        self._max_batch = max_batch
        self._cycle = Factor(ASSUMED.cycle)
        self._decode: dict[int, Factor] = {}
        """What decoding one image for a resolution takes of late."""
        self._decode_seen = self._apart = False
        """Whether this table's images were looked at; whether all were decoded apart."""
        self._ordinary_ms = float("-inf")
        """When the last image came that was not."""
        self._tables: dict[tuple[Listing, ...] | None, CostTable] = {}
        """By the points to choose among; None: the frontier."""
        self._made_ms, self._made_for = float("-inf"), frontier
        self._learnt = False
        """Whether anything was learnt since the tables were made."""
        self._crowded_ms: float | None = None
        """When the last run ended, if enough were left inside to keep every core busy."""

    def is_old(self, now_ms: float) -> bool:
        """Whether what was learnt since should show."""
        return not 0 <= now_ms - self._made_ms < _REFRESH_MS

    def learnt(self) -> None:
        """Something was learnt that the next table should know."""
        self._learnt = True

    def table(self, now_ms: float, listings: Sequence[Listing] | None = None) -> CostTable:
        """What every point costs now."""
        if (self._learnt and self.is_old(now_ms)) or self._made_for is not self.frontier:
            self._tables.clear()
            self._made_ms, self._made_for = now_ms, self.frontier
            self._learnt = self._decode_seen = False
        # Nearly all requests choose among the frontier, whose hash would take longer than the rest.
        key = tuple(listings) if listings and listings is not self.frontier else None
        found = self._tables.get(key)
        if found is None:
            found = make_table(
                key or self.frontier,
                self._model,
                self._host,
                self._max_batch,
                self.decode_ms,
                self._cycle.value,
            )
            self._tables[key] = found
        return found

    def decode_ms(self, resolution: int) -> float:
        """What decoding one image takes of late."""
        known = self._decode
        if not known:
            return ASSUMED.decode_ms
        return known[min(known, key=lambda side: abs(side - resolution))].value

    def beside_ms(self, resolution: int, images: int) -> float:
        """What decoding and HTTP take from the engine while it runs so many images."""
        return images * beside_ms(self._host, self.decode_ms(resolution), self._model.overhead_ms())

    def learn_decode(
        self, request: Request, decode_ms: Callable[[int], float], now_ms: float
    ) -> None:
        """Take in what one request's images cost at every resolution; one per table is enough."""
        apart = request.decoded_apart
        if not apart:
            self._ordinary_ms = now_ms
        if self._decode_seen or (apart and now_ms - self._ordinary_ms <= _ORDINARY_MS):
            return
        self._decode_seen = True
        if apart != self._apart:
            self._apart = apart
            self._decode.clear()
            self._tables.clear()
        for resolution in {x.point.resolution for x in self.frontier}:
            each = max(decode_ms(resolution) / request.images, 0.01)
            self._decode.setdefault(resolution, Factor(each)).learn(each)

    def learn_cycle(self, plan: Plan, point: OperatingPoint | None, images: int) -> None:
        """Compare the time since the last run of a crowded service with what it got done."""
        since, now_ms = self._crowded_ms, plan.ended_ms
        self._crowded_ms = now_ms if plan.inside >= TUNING.crowd else None
        if since is None:
            return
        cost = next((c for c in self.table(now_ms).points if c.listing.point == point), None)
        if cost is not None:
            self._cycle.learn((now_ms - since) * self._cycle.value / (images * cost.unit_ms))
