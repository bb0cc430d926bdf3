"""What a scheduler tells a router of a fleet: the service and a replay say the same."""

from __future__ import annotations

from collections.abc import Callable

from service.fleet.headroom import Headroom, few
from service.scheduling.scheduler import Scheduler


def reported(
    scheduler: Scheduler,
    now_ms: float,
    decode_ms: Callable[[int], float],
    arrivals_per_s: float = 0.0,
) -> Headroom:
    """What a request that came now could be promised."""
    table = scheduler.table(now_ms)
    # Nobody is given a luxury, so nobody needs a budget for it.
    luxuries = {cost.listing.point for cost in table.points if cost.luxury}
    outlook = [
        (listing.rank, needed)
        for listing, needed in scheduler.outlook(now_ms, decode_ms)
        if listing.point not in luxuries
    ]
    wait = scheduler.schedule.drain_ms(now_ms)
    best_ms, _ = table.hull[-1]
    return Headroom(
        few(outlook),
        work_ms=best_ms,
        wait_ms=wait,
        price=scheduler.price,
        arrivals_per_s=arrivals_per_s,
        utilisation=min(1.0, wait / outlook[0][1]),
    )
