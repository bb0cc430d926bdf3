"""How many replicas there should be: by what clients lost, not by how many requests are inside.

A service that keeps its budgets by lowering the resolution, and refuses what it cannot keep, has
few requests inside however large the load is. So load shows as accuracy given up, and as promises
that were refused or broken. Nothing here needs Ray: the context is handed in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

SHORT = 0.02
"""Accuracy that answers may fall short of what an idle replica serves, on average."""
BROKEN = 0.01
"""Share of requests that may be refused, late or dropped."""
BUSY = 0.6
"""Share of the engine's time in use at which waiting begins to grow faster than throughput."""
_DOWN = 0.5
"""Shrink only if the replicas that are left would still be below this part of every bound."""


def needed(current: int, *, short: float, broken: float, busy: float) -> int:
    """The replicas that bring every figure below its bound.

    Load is shared out evenly: twice as many replicas are half as busy. What is lost to load says
    less about how much is missing, so it doubles the number at most.
    """
    pressure = max(short / SHORT, broken / BROKEN)
    if pressure > 1 or busy > BUSY:
        wanted = max(busy / BUSY, min(2.0, 1 + 0.25 * pressure) if pressure > 1 else 1.0)
        return max(current + 1, math.ceil(current * min(2.0, wanted)))
    if current > 1 and pressure < _DOWN and busy * current / (current - 1) < _DOWN * BUSY:
        return current - 1
    return current


def by_promises(context: Any) -> tuple[int, dict[str, Any]]:
    """Ray's autoscaling policy: its context in, the target and the policy's memory out.

    Ray itself waits for `upscale_delay_s` or `downscale_delay_s` before it follows, and keeps to
    the least and most replicas.
    """
    metrics = context.aggregated_metrics or {}
    wanted = needed(
        max(1, context.target_num_replicas),
        short=_mean(metrics.get("short", {})),
        broken=_mean(metrics.get("broken", {})),
        busy=_mean(metrics.get("busy", {})),
    )
    return wanted, {}


def _mean(by_replica: Mapping[Any, float]) -> float:
    return sum(by_replica.values()) / len(by_replica) if by_replica else 0.0
