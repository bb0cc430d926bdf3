import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from san_core.frontier import OperatingPoint
from san_core.preprocessing import ImageHeader, Preprocessing
from service.images.header import quick_header
from service.latency.catalogue import Listing
from service.latency.measurement import (
    _monotone,
    measure_decode,
    measure_forward,
    measure_standin,
    photograph,
)
from service.latency.model import LatencyModel, Measurements, decode_work
from tests.service.fakes import FakeClock, FakeNetwork


async def at_once(function):
    return function()


def listings(*resolutions):
    return [Listing(OperatingPoint(r), r / 1000, r / 1000) for r in resolutions]


def test_what_is_measured_is_what_it_takes():
    clock, measurements, built = FakeClock(), Measurements(), []

    async def build(point):
        built.append(point)
        clock.advance(50)
        return FakeNetwork(point, clock=clock, takes_ms=point.resolution / 10)

    kept = asyncio.run(
        measure_forward(
            listings(40, 80), build, at_once, clock, measurements, max_batch=4, capacity_bytes=10**6
        )
    )
    assert measurements.curves[(40, "float")].at(1) == pytest.approx(4)
    assert measurements.curves[(80, "float")].at(4) == pytest.approx(32)
    assert measurements.build_ms["float"] == pytest.approx(50)
    assert len(built) == len(kept) == 2


def test_a_slow_moment_at_the_start_does_not_make_batches_look_slow():
    clock, measurements = FakeClock(), Measurements()

    class SlowAtFirst(FakeNetwork):
        def run(self, batch):
            if len(batch) == 1 and 4 in self.batches:  # the second round
                self.takes_ms = 6
            return super().run(batch)

    async def build(point):
        return SlowAtFirst(point, clock=clock, takes_ms=12)

    asyncio.run(
        measure_forward(
            listings(40), build, at_once, clock, measurements, max_batch=4, capacity_bytes=10**6
        )
    )
    curve = measurements.curves[(40, "float")]
    assert (curve.at(1), curve.at(2), curve.at(4)) == pytest.approx((6, 12, 24))


def test_networks_that_do_not_fit_together_are_measured_in_turn():
    clock, measurements = FakeClock(), Measurements()

    async def build(point):
        return FakeNetwork(point, memory_bytes=100, clock=clock, takes_ms=1.0)

    kept = asyncio.run(
        measure_forward(
            listings(40, 60, 80),
            build,
            at_once,
            clock,
            measurements,
            max_batch=1,
            capacity_bytes=150,
        )
    )
    assert len(measurements.curves) == 3
    assert len(kept) == 1


def test_networks_that_are_beaten_make_room_for_the_next():
    clock, measurements = FakeClock(), Measurements()
    takes = {40: 1.0, 60: 1.0, 80: 2.0, 100: 3.0}

    async def build(point):
        return FakeNetwork(point, memory_bytes=100, clock=clock, takes_ms=takes[point.resolution])

    kept = asyncio.run(
        measure_forward(
            listings(*takes),
            build,
            at_once,
            clock,
            measurements,
            max_batch=1,
            capacity_bytes=300,
        )
    )
    assert [network.point.resolution for network in kept] == [60, 80, 100]


@given(
    st.dictionaries(
        st.tuples(st.integers(32, 300), st.sampled_from(["float", "int8"])),
        st.lists(st.floats(0.1, 100), min_size=3, max_size=3),
        max_size=8,
    )
)
def test_noise_never_makes_a_smaller_input_or_batch_slower(base):
    found = _monotone(base)
    assert found.keys() == base.keys()
    for (resolution, precision), times in found.items():
        assert times == sorted(times)
        for (other, same), more in found.items():
            if same == precision and other > resolution:
                assert all(a <= b for a, b in zip(times, more, strict=True))


def test_decoding_is_measured_for_images_of_several_sizes():
    from service.runtime.clock import monotonic_ms

    async def make(function):
        return function()

    measurements = Measurements()
    asyncio.run(
        measure_decode(Preprocessing(), [32, 96], at_once, make, monotonic_ms, measurements)
    )
    assert set(measurements.decode) == {"JPEG", "PNG"}
    model = LatencyModel(measurements)
    small = decode_work(ImageHeader("JPEG", 320, 240, 1), 20_000, 110)
    large = decode_work(ImageHeader("JPEG", 4000, 3000, 1), 3_000_000, 110)
    assert 0 < model.decode_ms(small, 0.5, 0) < model.decode_ms(large, 0.5, 0)


def test_the_stand_in_is_timed_from_nothing_to_an_answer():
    clock, measurements = FakeClock(), Measurements()

    def build(point):
        clock.advance(5)
        return FakeNetwork(point, clock=clock, takes_ms=10)

    asyncio.run(measure_standin([32, 64, 96], build, at_once, clock, measurements))
    assert measurements.standin_ms == {32: 15, 64: 15, 96: 15}


def test_a_made_photograph_is_an_image_of_that_size():
    header = quick_header(photograph(320, 240, "JPEG"))
    assert (header.width, header.height) == (320, 240)
    assert len(np.frombuffer(photograph(64, 48, "PNG"), dtype=np.uint8)) > 0
