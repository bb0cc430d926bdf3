import pytest
from hypothesis import given
from hypothesis import strategies as st

from san_core.preprocessing import ImageHeader
from service.latency.model import (
    Curve,
    DecodeCost,
    DecodeWork,
    LatencyModel,
    Measurements,
    decode_work,
)

SMALL, LARGE = (64, "float"), (128, "float")


def measured():
    return Measurements(
        curves={SMALL: Curve((1, 8), (2.0, 9.0)), LARGE: Curve((1, 8), (6.0, 40.0))},
        ratios={SMALL: [1.0, 1.0, 1.1, 1.2], LARGE: [1.0, 1.0, 1.1, 1.2]},
        decode={"JPEG": DecodeCost((1.0, 0.0, 2.0, 4.0))},
        decode_ratios=[1.0, 1.2],
        build_ms={"float": 100.0},
    )


def test_a_curve_is_straight_between_what_was_measured():
    curve = Curve((1, 8), (2.0, 9.0))
    assert [curve.at(n) for n in (1, 2, 8, 16)] == [2.0, 3.0, 9.0, 18.0]


def test_quantiles_rise():
    model = LatencyModel(measured())
    assert model.forward_ms(SMALL, 1, 0.5, 0) <= model.forward_ms(SMALL, 1, 0.99, 0)


def test_live_traffic_corrects_the_prediction():
    model = LatencyModel(measured())
    for now in range(100):
        model.observe_forward(LARGE, 1, 12.0, now)
    assert model.forward_ms(LARGE, 1, 0.5, 100) == pytest.approx(12.0)


def test_a_slow_host_slows_points_nobody_used_and_they_recover_with_it():
    model = LatencyModel(measured())
    for now in range(200):
        model.observe_forward(SMALL, 1, 6.0, now)
    assert model.forward_ms(LARGE, 1, 0.5, 200) == pytest.approx(18.0)
    for now in range(20_000, 20_200):
        model.observe_forward(SMALL, 1, 2.0, now)
    assert model.forward_ms(LARGE, 1, 0.5, 20_200) == pytest.approx(6.0)


def test_a_burst_is_forgotten_even_without_traffic():
    model = LatencyModel(measured())
    for now in range(100):
        model.observe_forward(LARGE, 1, 60.0, now)
    assert model.forward_ms(LARGE, 1, 0.5, 100) == pytest.approx(60.0)
    assert model.forward_ms(LARGE, 1, 0.5, 100_000) == pytest.approx(6.0)


def test_what_was_learnt_under_load_ends_with_it():
    loaded = True
    model = LatencyModel(measured(), lambda _: loaded)
    image = decode_work(ImageHeader("JPEG", 500, 375, 1), 50_000, 100)
    before = model.forward_ms(LARGE, 1, 0.99, 0), model.decode_ms(image, 0.99, 0)
    for now in range(100):
        model.observe_forward(LARGE, 1, 60.0, now)
        model.observe_decode(image, 50.0, now)
        model.observe_overhead(150.0, now)
    assert model.forward_ms(LARGE, 1, 0.99, 100) == pytest.approx(60.0)
    assert model.forward_ms(SMALL, 1, 0.99, 100) == pytest.approx(20.0)
    assert model.decode_ms(image, 0.99, 100) == pytest.approx(50.0)
    assert model.overhead_ms(0.99, 100) == pytest.approx(150.0)
    # no request comes to show that the machine has recovered: nobody would be let in to show it
    after = model.forward_ms(LARGE, 1, 0.99, 1000), model.decode_ms(image, 0.99, 1000)
    assert after == before
    assert model.overhead_ms(0.99, 1000) < 1.0
    loaded = False
    model.observe_overhead(2.0, 1000)
    assert model.overhead_ms(0.99, 30_000) == 2.0


def test_drift_is_seen_and_passes():
    model = LatencyModel(measured())
    assert model.drift(0) == 1.0
    for now in range(100):
        model.observe_forward(SMALL, 1, 4.0, now)
    assert model.drift(100) == pytest.approx(2.0)
    assert model.has_drifted(100)
    assert not model.has_drifted(60_000)


def test_an_unmeasured_resolution_scales_with_its_pixels():
    model = LatencyModel(measured())
    assert model.forward_ms((256, "float"), 1, 0.0, 0) == pytest.approx(24.0)
    assert model.forward_ms((64, "int8"), 1, 0.0, 0) == pytest.approx(2.0)


def test_jpegs_are_decoded_at_reduced_scale_and_the_work_says_so():
    header = ImageHeader("JPEG", 4000, 3000, 1)
    assert decode_work(header, 10, 110).decoded_megapixels == pytest.approx(12 / 64)
    assert decode_work(header, 10, 1000).decoded_megapixels == pytest.approx(12 / 4)
    assert decode_work(ImageHeader("PNG", 4000, 3000, 1), 10, 110).decoded_megapixels == 12


def test_a_larger_image_is_predicted_to_take_longer():
    model = LatencyModel(measured())
    small = decode_work(ImageHeader("JPEG", 500, 375, 1), 50_000, 100)
    large = decode_work(ImageHeader("JPEG", 4000, 3000, 1), 3_000_000, 100)
    assert model.decode_ms(small, 0.99, 0) < model.decode_ms(large, 0.99, 0)
    for _ in range(100):
        model.observe_decode(large, 500.0, 0)
    assert model.decode_ms(large, 0.5, 0) == pytest.approx(500.0)


def test_the_fit_finds_a_cost_that_is_there():
    truth = DecodeCost((0.5, 8.0, 1.5, 6.0))
    works = [
        DecodeWork("JPEG", mb, mp, mp / f)
        for mb, mp in ((0.05, 0.2), (0.3, 1.1), (1.0, 4.3), (2.0, 7.7))
        for f in (1, 4, 16)
    ]
    fitted = DecodeCost.fit([(work, truth.at(work)) for work in works])
    assert all(fitted.at(w) == pytest.approx(truth.at(w), rel=0.05) for w in works)
    assert all(c >= 0 for c in fitted.coefficients)


def test_building_learns_quickly_upwards():
    model = LatencyModel(measured())
    model.observe_build("float", 300.0)
    assert model.build_ms("float") == 200.0
    model.observe_build("float", 100.0)
    assert model.build_ms("float") == pytest.approx(190.0)
    assert model.build_ms("int8") == pytest.approx(190.0)


def test_cold_weights_cost_the_shorter_of_compiling_and_the_stand_in():
    known = measured()
    assert LatencyModel(known).cold_ms(SMALL, 0) == 100.0
    known.standin_ms = {64: 22.0}
    assert LatencyModel(known).cold_ms(SMALL, 0) == pytest.approx(20.0)


def test_measurements_survive_json():
    known = measured()
    known.standin_ms = {64: 22.0}
    assert Measurements.from_json(known.to_json()) == known


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(["forward", "decode", "decode_ratios", "build_ms", "standin_ms"]), x
            )
        ),
    )
)
def test_foreign_json_is_an_error_we_expect(data):
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        Measurements.from_json(data)


@given(
    st.lists(st.tuples(st.integers(1, 16), st.floats(0.1, 100)), max_size=200), st.integers(1, 15)
)
def test_a_larger_batch_is_never_predicted_faster(observed, n):
    model = LatencyModel(measured())
    for now, (batch, ms) in enumerate(observed):
        model.observe_forward(LARGE, batch, ms, now)
    now = len(observed)
    assert model.forward_ms(LARGE, n, 0.99, now) <= model.forward_ms(LARGE, n + 1, 0.99, now) + 1e-9


def test_promises_that_were_broken_make_predictions_longer_and_kept_ones_do_not():
    model = LatencyModel(Measurements(curves={(32, "float"): Curve((1,), (1.0,))}))
    assert model.excess_ms(0.99, 0.0) == 0.0
    for n in range(200):
        model.observe_excess(-2.0, 10.0 * n)
    assert model.excess_ms(0.99, 2000.0) == 0.0
    for n in range(8):
        model.observe_excess(3.0, 2000.0 + n)
    assert model.excess_ms(0.99, 2100.0) == 3.0
