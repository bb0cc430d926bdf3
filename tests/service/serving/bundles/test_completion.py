"""In which order points are completed, and when they are timed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from san_core.frontier import OperatingPoint
from service.engines.base import EngineTraits
from service.latency.catalogue import Listing
from service.serving.bundles.completion import Completion


@pytest.mark.parametrize(("pads", "first"), [(True, 96), (False, 32)])
def test_the_largest_first_where_graphs_share_memory_else_what_requests_use(pads, first):
    used = SimpleNamespace(hits=9, point=OperatingPoint(32))
    completion = Completion.__new__(Completion)
    completion._deployment = SimpleNamespace(
        engine=SimpleNamespace(traits=EngineTraits(pads=pads)),
        cache=SimpleNamespace(entries=lambda: [used]),
    )
    listings = [Listing(OperatingPoint(side), side / 100, side / 100) for side in (64, 96, 32)]
    assert completion._nearest_to_demand(listings).point.resolution == first


def test_times_are_taken_in_pauses_only_and_again_if_requests_come_meanwhile():
    """A run cannot be interrupted: it would make the next request late."""
    ran, answers = [], iter([False, True, True, False, *[True] * 1000])
    learnt = {}

    class Thread:
        async def submit(self, timed, _):
            ran.append(timed)
            return [1.0]

    @asynccontextmanager
    async def turn():
        yield

    network = SimpleNamespace(point=OperatingPoint(32))
    deployment = SimpleNamespace(
        engine=SimpleNamespace(traits=EngineTraits()), learn=lambda curves: learnt.update(curves)
    )
    machinery = SimpleNamespace(
        clock=lambda: 0.0, settings=SimpleNamespace(max_batch=2), engine_thread=Thread()
    )
    completion = Completion(deployment, machinery, None, lambda: next(answers), turn)
    asyncio.run(completion._measure({(32, "float"): network}))
    # One run before a request came, then all of them: nine rounds of one image and of two.
    assert len(ran) == 1 + 9 * 2
    assert learnt[32, "float"].sizes == (1, 2)
