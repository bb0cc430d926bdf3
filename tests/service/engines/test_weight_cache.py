import asyncio
import gc
import logging
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from san_core.frontier import OperatingPoint
from service.engines.weight_cache import BACKGROUND, WeightCache
from service.errors import EngineFullError, Problem
from tests.service.fakes import FakeClock, FakeNetwork, InlineWorkers


def point(resolution):
    return OperatingPoint(resolution)


def cache_of(workers=None, capacity=1000, most=100, build=FakeNetwork, **options):
    return WeightCache(
        build,
        workers or InlineWorkers(),
        capacity_bytes=capacity,
        max_networks=most,
        clock=FakeClock(),
        **options,
    )


def test_a_second_request_finds_it_cached():
    async def story():
        cache = cache_of()
        first, cached = await cache.get(point(64))
        assert not cached
        again, cached = await cache.get(point(64))
        assert cached
        assert again is first
        assert (cache.facts.hits, cache.facts.misses, cache.facts.builds) == (1, 1, 1)

    asyncio.run(story())


def test_however_many_wait_there_is_one_build_and_a_quitter_does_not_cancel_it():
    async def story():
        workers = InlineWorkers(held=True)
        cache = cache_of(workers)
        waiting = [asyncio.create_task(cache.get(point(64))) for _ in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        assert len(workers.jobs) == 1
        workers.run_next()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert len({id(network) for network, _ in found[1:]}) == 1
        assert cache.facts.builds == 1

    asyncio.run(story())


def test_a_failure_reaches_all_who_wait_and_is_not_remembered(caplog):
    async def story():
        workers = InlineWorkers(held=True)
        broken = [True]

        def build(p):
            if broken[0]:
                raise RuntimeError("no memory")
            return FakeNetwork(p)

        cache = cache_of(workers, build=build)
        waiting = [asyncio.create_task(cache.get(point(64))) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        workers.run_next()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(error) for error in found] == ["no memory"] * 2
        assert cache.facts.failures == 1
        broken[0] = False
        workers.held = False
        assert await cache.get(point(64))

    with caplog.at_level(logging.CRITICAL):
        asyncio.run(story())


def test_what_a_request_waits_for_is_built_before_the_warm_up():
    async def story():
        workers = InlineWorkers(held=True)
        built = []
        cache = cache_of(workers, on_built=lambda p, _: built.append(p))
        asyncio.get_running_loop()
        warm = asyncio.ensure_future(cache.request(point(32), BACKGROUND))
        wanted = asyncio.ensure_future(cache.request(point(64)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        workers.run_next()
        workers.run_next()
        await asyncio.gather(warm, wanted)
        assert built == [point(64), point(32)]

    asyncio.run(story())


def test_networks_larger_than_the_cache_are_served_but_not_kept():
    async def story():
        cache = cache_of(capacity=50)
        network, _ = await cache.get(point(64))
        assert network.point == point(64)
        assert len(cache) == 0

    asyncio.run(story())


def test_a_device_that_is_full_gets_room_and_one_more_try():
    async def story(failures):
        left = [EngineFullError("no memory left")] * failures

        def build(wanted):
            if wanted == point(96) and left:
                raise left.pop()
            return FakeNetwork(wanted)

        cache = cache_of(build=build)
        for resolution in (32, 40, 48, 56):
            await cache.get(point(resolution))
        if failures > 1:
            with pytest.raises(EngineFullError):
                await cache.get(point(96))
            assert Problem(EngineFullError("no memory left"), "id").status == 503
        else:
            assert (await cache.get(point(96)))[0].point == point(96)
        assert point(32) not in cache  # the least recently used half
        assert point(40) not in cache
        assert point(56) in cache
        # What fits beside the others is built again unasked, what filled the device is not.
        for resolution in (32, 40):
            if cache.has_room_for(point(resolution)):
                await cache.get(point(resolution))
        assert len(cache) == 4
        assert not cache.has_room_for(point(40))
        cache.enlarge(cache.capacity_bytes)
        assert cache.has_room_for(point(40))

    for failures in (1, 2):
        asyncio.run(story(failures))


def test_evicting_by_hand():
    async def story():
        cache = cache_of()
        await cache.get(point(64))
        assert cache.evict(point(64))
        assert not cache.evict(point(64))
        assert cache.bytes == 0

    asyncio.run(story())


def test_closing_cancels_what_is_being_built():
    async def story():
        workers = InlineWorkers(held=True)
        cache = cache_of(workers)
        waiting = asyncio.create_task(cache.get(point(64)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await cache.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(story())


def test_a_closed_cache_holds_nobody_and_needs_no_collector_for_it():
    """The first deployment is frozen: the collector never looks at a cycle that it is part of."""

    class Owner:
        def __init__(self):
            self.cache = cache_of(build=self.build, on_built=self.built)

        def build(self, wanted):
            return FakeNetwork(wanted)

        def built(self, *_): ...

    async def story():
        owner = Owner()
        await owner.cache.get(point(64))
        await owner.cache.close()
        return weakref.ref(owner)

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(story())() is None
    finally:
        gc.enable()


@given(st.lists(st.integers(32, 60), max_size=60), st.integers(100, 900), st.integers(1, 6))
def test_never_more_bytes_nor_networks_than_allowed_and_the_last_used_stays(wanted, capacity, most):
    async def story():
        cache = cache_of(capacity=capacity, most=most)
        for resolution in wanted:
            network, _ = await cache.get(point(resolution))
            assert network.point.resolution == resolution
            assert cache.bytes <= capacity
            assert len(cache) <= most
            assert point(resolution) in cache
        facts = cache.facts
        assert facts.hits + facts.misses == len(wanted)
        assert facts.builds == facts.misses
        assert facts.builds - facts.evictions == len(cache)

    asyncio.run(story())


def test_what_is_evicted_on_its_way_is_not_kept_unless_it_is_wanted_again():
    async def story(again):
        workers = InlineWorkers(held=True)
        cache = cache_of(workers)
        waiting = asyncio.create_task(cache.get(point(64)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert cache.building() == (point(64),)
        assert cache.evict(point(64))
        assert cache.building() == ()
        if again:
            cache.request(point(64))
        workers.run_next()
        assert (await waiting)[0].point == point(64)
        assert (point(64) in cache) is again
        assert cache.evict(point(64)) is again

    for again in (False, True):
        asyncio.run(story(again))


def test_room_is_known_for_what_was_there_before():
    async def story():
        cache = cache_of(capacity=250)
        for resolution in (64, 96):
            await cache.get(point(resolution))
        assert cache.has_room_for(point(128))  # whatever its size: to find out
        await cache.get(point(128))
        assert point(64) not in cache
        assert not cache.has_room_for(point(64))
        cache.evict(point(96))
        assert cache.has_room_for(point(64))
        assert not cache_of(most=0).has_room_for(point(64))

    asyncio.run(story())


def test_what_clients_pin_never_takes_a_protected_place():
    async def story():
        cache = cache_of(capacity=1000, most=40)  # networks of 100 bytes
        frontier = [point(r) for r in range(32, 32 + 8 * 7, 8)]
        await cache.warm(frontier)
        await cache.get(point(320))
        cache.protect(frontier)
        for resolution in range(200, 512, 8):
            await cache.get(point(resolution))
        assert all(p in cache for p in frontier)
        assert cache.points()[-2:] == (point(496), point(504))
        assert len(cache) == 7 + 2
        assert cache.bytes <= cache.capacity_bytes
        assert not cache.has_room_for(point(200))
        assert cache.is_protected(frontier[0])
        assert not cache.is_protected(point(504))
        assert {entry.point for entry in cache.entries()} == set(cache.points())
        assert cache.evict(point(504))
        assert cache.evict(frontier[0])
        assert cache.has_room_for(frontier[0])

    asyncio.run(story())


def test_builds_for_clients_are_counted():
    async def story():
        workers = InlineWorkers(held=True)
        cache = cache_of(workers)
        cache.protect([point(64)])
        for resolution in (64, 72, 80):
            cache.request(point(resolution))
        assert cache.guest_builds == 2
        await cache.close()

    asyncio.run(story())
