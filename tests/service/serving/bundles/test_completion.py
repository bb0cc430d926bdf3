"""In which order points are completed, and when they are timed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import chain, cycle, repeat
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


class Stage:
    """A deployment whose runs take as long as their batch is large."""

    def __init__(self, *, pads, max_batch, pauses):
        self.ran, self.learnt = [], {}
        deployment = SimpleNamespace(
            engine=SimpleNamespace(traits=EngineTraits(pads=pads)),
            learn=self.learnt.update,
            catalogue=SimpleNamespace(
                worth_building=lambda: [Listing(OperatingPoint(32), 0.5, 0.5)]
            ),
            cache=SimpleNamespace(peek=self._network),
            store=SimpleNamespace(save=lambda _: None),
            model=SimpleNamespace(measurements=SimpleNamespace(without=lambda _: None)),
        )
        machinery = SimpleNamespace(
            clock=lambda: 0.0,
            settings=SimpleNamespace(max_batch=max_batch),
            engine_thread=self,
            builders=SimpleNamespace(submit=self._build),
        )
        self._completion = Completion(deployment, machinery, None, lambda: next(pauses), self._turn)

    def _network(self, point):
        return SimpleNamespace(point=point, finish=lambda: self.ran.append("finish"))

    async def _build(self, function, _):
        function()

    def measure_again(self):
        asyncio.run(self._completion.measure_again())
        return self.ran

    async def submit(self, timed, _):
        self.ran.append(timed)
        return [float(timed.args[1])]

    @asynccontextmanager
    async def _turn(self):
        yield

    def measure(self):
        network = SimpleNamespace(point=OperatingPoint(32))
        asyncio.run(self._completion._measure({(32, "float"): network}))
        return self.learnt[32, "float"]


def test_times_are_taken_in_pauses_only_and_again_if_requests_come_meanwhile():
    """A run cannot be interrupted: it would make the next request late."""
    pauses = iter([False, True, True, False, *[True] * 1000])
    stage = Stage(pads=False, max_batch=2, pauses=pauses)
    assert stage.measure().sizes == (1, 2)
    # One run before a request came, then all of them: nine rounds of one image and of two.
    assert len(stage.ran) == 1 + 9 * 2


@pytest.mark.parametrize(("pads", "of_five"), [(True, 8.0), (False, 5.0)])
def test_an_engine_that_pads_has_a_curve_in_steps(pads, of_five):
    stage = Stage(pads=pads, max_batch=8, pauses=repeat(True))
    assert stage.measure().at(5) == of_five


def test_how_one_image_runs_is_compared_again_before_it_is_timed_again():
    stage = Stage(pads=False, max_batch=1, pauses=repeat(True))
    first, *timed = stage.measure_again()
    assert first == "finish"
    assert len(timed) == 9


class Crowded(Stage):
    """Others use the machine: every other run takes twice as long."""

    def __init__(self, fastest):
        super().__init__(pads=False, max_batch=1, pauses=repeat(True))
        self._fastest, self._slower = fastest, cycle((1.0, 2.0))

    async def submit(self, timed, _):
        await super().submit(timed, _)
        return [next(self._fastest) * next(self._slower)]

    def measure_noisy(self):
        return self.measure().at(1), bool(self._completion.noisy)


def test_where_it_is_never_quiet_the_shortest_times_are_kept_once_nothing_is_shorter():
    fastest = chain(*(repeat(ms, 9) for ms in (4.0, 5.0, 3.0, 2.9, 6.0, 3.0, 9.0)))
    stage = Crowded(fastest)
    told = [stage.measure_noisy() for _ in range(6)]
    assert told == [(4.0, True), (4.0, True), (3.0, True), (2.9, True), (2.9, True), (2.9, False)]


def test_times_that_traffic_contradicts_are_forgotten():
    stage = Crowded(chain(repeat(1.0, 9), repeat(7.0)))
    for _ in range(3):
        stage.measure_noisy()
    stage.measure_again()
    assert stage.learnt[32, "float"].at(1) == 7.0
    assert stage._completion.noisy
