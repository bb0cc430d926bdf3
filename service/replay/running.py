"""Replaying a trace with a policy, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from service.latency.catalogue import Listing
from service.latency.curves import Measurements
from service.replay.machine import HostModel, reference
from service.replay.policies import Fixed, MaxAccuracy, MaxBatch, Ours, SlackFit
from service.replay.rivals import EarlyShares, LateShares, Previous
from service.replay.simulation import Result, Simulation
from service.replay.traces import Arrival

Make = Callable[[Measurements, list[Listing], HostModel], Any]

POLICIES: Mapping[str, Make] = {
    "san-serve": Ours,
    "fixed": lambda measured, listings, _: Fixed(measured, listings),
    "fixed-dropping": lambda measured, listings, _: Fixed(measured, listings, dropping=True),
    "slackfit": lambda measured, listings, _: SlackFit(measured, listings),
    "max-accuracy": lambda measured, listings, _: MaxAccuracy(measured, listings),
    "max-batch": lambda measured, listings, _: MaxBatch(measured, listings),
    "early-shares": lambda measured, listings, host: EarlyShares(measured, listings, host=host),
    "late-shares": lambda measured, listings, host: LateShares(measured, listings, host=host),
    "previous": lambda measured, listings, host: Previous(measured, listings, host=host),
}


def replay(
    trace: list[Arrival],
    policy: str,
    host: HostModel | None = None,
    measured: Measurements | None = None,
    seed: int = 1,
) -> Result:
    """Play a trace with one policy; `measured` replaces the reference host's times."""
    host = host or HostModel()
    known, listings = reference()
    measured = measured or known
    listings = [x for x in listings if x.shape in measured.curves]
    made = POLICIES[policy](measured, listings, host)
    simulation = Simulation(made, host, measured, listings, seed)
    return simulation.run(trace)
