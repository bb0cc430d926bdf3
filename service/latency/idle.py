"""What this host does when it is idle: the yardstick that service levels are measured with.

It is made of the times that were taken at start and never follows live traffic. A host that becomes
slow makes the service miss what it could do before; a yardstick that slowed down with it would call
those budgets infeasible, and the worse the host, the better the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from san_core.preprocessing import ImageHeader
from service.latency.catalogue import Listing
from service.latency.decode_cost import DecodeCost
from service.latency.model import LatencyModel
from service.request.request import Idle

_SPREAD = 1.5
"""An idle host's p99 over its median, as the first requests after a start show it: a budget counts
as feasible if an idle service would keep it 99 times of 100, not one time of two."""
_OVERHEAD_MS = 0.4
"""What a request costs outside of decoding and forward on an idle host."""


class IdleHost:
    """Answers for a bundle's frontier."""

    def __init__(
        self,
        model: LatencyModel,
        frontier: Sequence[Listing],
        least_side: Callable[[int], int],
    ) -> None:
        self._decode = model.measurements.decode
        self._points = [
            (
                _SPREAD * (model.curve(x.shape).at(1) + _OVERHEAD_MS),
                least_side(x.point.resolution),
                x.accuracy,
            )
            for x in sorted(frontier, key=lambda x: x.accuracy or 0.0, reverse=True)
        ]
        """The most accurate first."""

    def look(
        self,
        header: ImageHeader | None,
        size: int,
        allowed_ms: float | None,
        min_accuracy: float | None = None,
    ) -> Idle:
        """For an image of `size` bytes; no header, nothing to decode. No limit: any time."""
        decode = None if header is None else self._cost(header).times(header, size, _SPREAD)
        feasible = False
        for forward_ms, at_least, known in self._points:
            if min_accuracy is not None and (known is None or known < min_accuracy):
                continue
            needed = forward_ms if decode is None else forward_ms + decode.at(at_least)
            if allowed_ms is None or needed <= allowed_ms:
                feasible = True
                if known is not None:
                    return Idle(feasible, known)
        return Idle(feasible, None)

    def _cost(self, header: ImageHeader) -> DecodeCost:
        return self._decode.get(header.format) or self._decode.get("PNG") or DecodeCost()
