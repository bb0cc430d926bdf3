"""What each operating point would cost one request now: the numbers the policy chooses by."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from san_core.frontier import OperatingPoint
from san_core.preprocessing import ImageHeader, Preprocessing
from service.engines.weight_cache import WeightCache
from service.latency.catalogue import Listing
from service.latency.model import LatencyModel, decode_scale, decode_work
from service.request.budget import Budget
from service.scheduling.load import Load
from service.scheduling.policy import Option

_TYPICAL = 0.9
"""Quantile for work that goes before: a sum of many is surer than each of them."""


_MOST_EXCESS = 0.2
"""Of a budget: what predictions missed may make the service careful, but never close it, or it
could not see that they are right again."""


class Forecast:
    """Puts latency model, load and cache together."""

    def __init__(
        self,
        model: LatencyModel,
        load: Load,
        cache: WeightCache,
        preprocessing: Preprocessing,
        *,
        quantile: float,
        max_batch: int,
        queue_safety: float,
        load_reserve: float,
    ) -> None:
        self._model = model
        self._load = load
        self._cache = cache
        self._least_side = lru_cache(maxsize=1024)(preprocessing.least_side)
        self._quantile = quantile
        self._max_batch = max_batch
        self._queue_safety = queue_safety
        self._load_reserve = load_reserve

    def options(
        self,
        listings: Sequence[Listing],
        header: ImageHeader | None,
        size: int,
        budget: Budget,
        now_ms: float,
    ) -> list[Option]:
        """One option per listing, for an image of `size` bytes; no header, nothing to decode.

        Listings come fastest first, as a frontier does: under load the later ones must leave more
        room, so that resolution gives way long before anybody is refused.
        """
        q, model, load = self._quantile, self._model, self._load
        deadline = budget.deadline_ms
        overhead = model.overhead_ms(q, now_ms)
        # Who named no budget was promised nothing.
        most = _MOST_EXCESS * (budget.limit_ms or 0.0)
        excess = min(most, model.excess_ms(q, now_ms))
        busy = len(load) > 0
        decode_ahead = load.decode_ahead_ms(deadline) if busy else 0.0
        engine_ahead = load.engine_ahead_ms(deadline, now_ms) if busy else 0.0
        slack = load.slack_ms(deadline, now_ms) if busy else float("inf")
        loaded = model.remembers_load(now_ms)
        decoding = _Decoding(model, header, size, q, now_ms)
        found = []
        steps = max(1, len(listings) - 1)
        for place, listing in enumerate(listings):
            point, shape = listing.point, listing.shape
            at_least = self._least_side(point.resolution)
            decode = decoding.ms(at_least)
            mates = load.waiting_at(point) % self._max_batch if busy else 0
            forward = model.forward_ms(shape, mates + 1, q, now_ms)
            cold = 0.0 if point in self._cache else model.cold_ms(shape, now_ms)
            queue = 0.0
            if busy:
                ahead = engine_ahead
                if forward > slack:
                    # In its turn it would make someone else late; its place is after everyone.
                    ahead = load.engine_ahead_ms(float("inf"), now_ms)
                if mates:
                    # They run in its batch, not before it.
                    ahead -= model.forward_ms(shape, mates, _TYPICAL, now_ms)
                # It waits for a decoder and decodes while the engine works off what is ahead.
                queue = self._queue_safety * (max(decode_ahead + decode, ahead) - decode)
            contention = 0.0
            if loaded:
                calm = model.forward_ms(shape, mates + 1, q, now_ms, calm=True)
                calm += model.overhead_ms(q, now_ms, calm=True)
                calm += min(most, model.excess_ms(q, now_ms, calm=True))
                calm += decoding.ms(at_least, calm=True)
                contention = max(0.0, decode + forward + overhead + excess - calm)
            found.append(
                Option(
                    point,
                    listing.rank,
                    decode,
                    queue,
                    cold,
                    forward,
                    overhead,
                    excess,
                    contention,
                    reserve_ms=queue * self._load_reserve * place / steps,
                )
            )
        return found

    def hopeless_ms(self, fastest: Listing, budget: Budget, now_ms: float) -> float | None:
        """How long even the fastest point would take, if load alone makes that too long.

        Asked at the door, before a byte of the body is read: the image's own cost is left out.
        """
        self._load.knocked(now_ms)
        if not len(self._load):
            return None
        own = self._model.forward_ms(fastest.shape, 1, 0.5, now_ms)
        calm = self._model.forward_ms(fastest.shape, 1, 0.5, now_ms, calm=True)
        ahead = self._load.engine_ahead_ms(budget.deadline_ms, now_ms)
        if calm <= budget.left_ms(now_ms) < own + ahead:
            return own + ahead
        return None

    def marginal_ms(self, point: OperatingPoint, now_ms: float) -> float:
        """What one more request at this point adds to the engine's work."""
        shape = (point.resolution, point.precision)
        joined = self._load.waiting_at(point) % self._max_batch
        with_it = self._model.forward_ms(shape, joined + 1, _TYPICAL, now_ms)
        without = self._model.forward_ms(shape, joined, _TYPICAL, now_ms) if joined else 0.0
        return max(with_it - without, 0.0)


class _Decoding:
    """What decoding one image costs, asked once per scale that it can be decoded at."""

    def __init__(
        self, model: LatencyModel, header: ImageHeader | None, size: int, q: float, now_ms: float
    ) -> None:
        self._model = model
        self._header = header
        self._size = size
        self._q = q
        self._now_ms = now_ms
        self._known: dict[tuple[int, bool], float] = {}

    def ms(self, at_least: int, *, calm: bool = False) -> float:
        """For `at_least` pixels on the shorter side; `calm`: as if there were no load."""
        if self._header is None:
            return 0.0
        key = decode_scale(self._header, at_least), calm
        found = self._known.get(key)
        if found is None:
            work = decode_work(self._header, self._size, at_least)
            found = self._model.decode_ms(work, self._q, self._now_ms, calm=calm)
            self._known[key] = found
        return found
