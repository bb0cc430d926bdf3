import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from san_core.frontier import OperatingPoint
from san_core.preprocessing import ImageHeader, Preprocessing
from service.images.header import read_header
from service.latency.curves import Curve, Measurements
from service.latency.decode_cost import decode_work
from service.latency.measurement import (
    AT_START,
    BEHIND_REQUESTS,
    measure_decode,
    measure_forward,
    missing,
    monotone,
    photograph,
)
from service.latency.model import LatencyModel
from tests.service.fakes import FakeClock, FakeNetwork

SHAPE = (40, "float")


async def at_once(function):
    return function()


def network(clock, resolution=40, takes_ms=4.0, kind=FakeNetwork):
    return kind(OperatingPoint(resolution), clock=clock, takes_ms=takes_ms)


@pytest.mark.parametrize("effort", [AT_START, BEHIND_REQUESTS])
def test_what_is_measured_is_what_it_takes(effort):
    clock = FakeClock()
    networks = {SHAPE: network(clock), (80, "float"): network(clock, 80, 8.0)}
    taken = asyncio.run(measure_forward(networks, (1, 2, 4), at_once, clock, effort))
    assert taken.curves[SHAPE].at(1) == pytest.approx(4)
    assert taken.curves[80, "float"].at(4) == pytest.approx(32)
    assert (taken.noise, taken.is_noisy) == (pytest.approx(1.0), False)


class Disturbed(FakeNetwork):
    """A neighbour takes the machine for the first half of its runs."""

    def run(self, batch):
        self.takes_ms = 40.0 if len(self.batches) < 9 else 4.0
        return super().run(batch)


def test_noise_is_noticed_and_the_least_disturbed_run_counts():
    clock = FakeClock()
    networks = {SHAPE: network(clock, kind=Disturbed)}
    taken = asyncio.run(measure_forward(networks, (1,), at_once, clock))
    assert taken.is_noisy
    assert taken.curves[SHAPE].at(1) == pytest.approx(4)


def test_a_larger_batch_is_never_faster():
    clock = FakeClock()

    class Odd(FakeNetwork):
        def run(self, batch):
            self.takes_ms = 8.0 if len(batch) == 1 else 1.0
            return super().run(batch)

    networks = {SHAPE: network(clock, kind=Odd)}
    taken = asyncio.run(measure_forward(networks, (1, 2), at_once, clock))
    assert taken.curves[SHAPE].ms == pytest.approx((8.0, 8.0))


@given(
    st.dictionaries(
        st.tuples(st.integers(32, 300), st.sampled_from(["float", "int8"])),
        st.lists(st.floats(0.1, 100), min_size=1, max_size=3),
        max_size=8,
    )
)
def test_noise_never_makes_a_smaller_input_slower(base):
    curves = {
        shape: Curve((1, 2, 4)[: len(times)], tuple(sorted(times))) for shape, times in base.items()
    }
    found = monotone(curves)
    assert found.keys() == curves.keys()
    for (resolution, precision), curve in found.items():
        assert curve.sizes == curves[resolution, precision].sizes
        for (other, same), more in found.items():
            if same == precision and other > resolution:
                assert curve.at(1) <= more.at(1)


def test_what_has_no_times_for_batches_is_missing():
    known = Measurements(
        curves={SHAPE: Curve((1,), (2.0,)), (64, "float"): Curve((1, 8), (3.0, 9.0))}
    )
    shapes = [SHAPE, (64, "float"), (96, "float")]
    assert missing(known, shapes, 1) == [(96, "float")]
    assert missing(known, shapes, 8) == [SHAPE, (96, "float")]


def test_decoding_is_measured_for_images_of_several_sizes():
    from service.runtime.clock import monotonic_ms

    measurements = Measurements()
    for image_format in ("JPEG", "PNG"):
        measurements.decode[image_format] = asyncio.run(
            measure_decode(Preprocessing(), [32, 96], at_once, at_once, monotonic_ms, image_format)
        )
    model = LatencyModel(measurements)
    small = decode_work(ImageHeader("JPEG", 320, 240), 20_000, 110)
    large = decode_work(ImageHeader("JPEG", 4000, 3000), 3_000_000, 110)
    assert 0 < model.decode_ms(small) < model.decode_ms(large)


def test_a_made_photograph_is_an_image_of_that_size():
    header = read_header(photograph(320, 240, "JPEG"), frozenset({"JPEG"}))
    assert (header.width, header.height) == (320, 240)
    assert len(np.frombuffer(photograph(64, 48, "PNG"), dtype=np.uint8)) > 0
