import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.latency.curves import Curve, Measurements, interpolated
from service.latency.model import LatencyModel
from tests.service.latency.times import measured


def test_a_curve_is_straight_between_what_was_measured():
    curve = Curve((1, 8), (2.0, 9.0))
    assert [curve.at(n) for n in (1, 2, 8, 16)] == [2.0, 3.0, 9.0, 18.0]


def test_between_measured_resolutions_time_is_straight_over_pixels():
    curves = {(30, "int8"): Curve((1, 2), (1.0, 2.0)), (50, "int8"): Curve((1, 2), (2.0, 4.0))}
    curve = interpolated(curves, (40, "int8"))
    assert curve.at(1) == pytest.approx(1 + 700 / 1600)
    assert curve.at(2) == pytest.approx(2 + 2 * 700 / 1600)
    model = LatencyModel(Measurements(curves=curves))
    assert model.curve((40, "int8")) == curve
    model.update({(40, "int8"): Curve((1,), (1.5,))})
    assert model.curve((40, "int8")).at(1) == 1.5


def test_an_images_time_is_that_of_the_batch_that_gets_the_most_done():
    assert Curve((1, 2, 4), (2.0, 2.4, 6.0)).unit_ms == 1.2
    assert Curve((1,), (2.0,)).unit_ms == 2.0


def test_measurements_survive_json():
    known = measured()
    assert Measurements.from_json(known.to_json()) == known


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda x: (
            st.lists(x) | st.dictionaries(st.sampled_from(["forward", "decode", "build_ms"]), x)
        ),
    )
)
def test_foreign_json_is_an_error_we_expect(data):
    try:
        found = Measurements.from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError):
        return
    assert found == Measurements()  # nothing is ours only if there is nothing


def test_a_machine_that_was_busy_all_the_time_keeps_the_rest():
    known = measured()
    kept = known.without(known.curves)
    assert Measurements.from_json(kept.to_json()) == kept


@pytest.mark.parametrize("start_ms", [[1.0, -1.0], ["x"], [float("nan")]])
def test_times_of_a_start_that_are_none_are_an_error(start_ms):
    with pytest.raises(ValueError, match=r"negative|convert"):
        Measurements.from_json(measured().to_json() | {"start_ms": start_ms})
