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
    interpolated,
)

SMALL, LARGE = (64, "float"), (128, "float")


def measured():
    return Measurements(
        curves={SMALL: Curve((1, 8), (2.0, 9.0)), LARGE: Curve((1, 8), (6.0, 40.0))},
        decode={"JPEG": DecodeCost((1.0, 0.0, 2.0, 4.0))},
        build_ms={"float": 100.0},
    )


def test_a_curve_is_straight_between_what_was_measured():
    curve = Curve((1, 8), (2.0, 9.0))
    assert [curve.at(n) for n in (1, 2, 8, 16)] == [2.0, 3.0, 9.0, 18.0]


def test_live_traffic_corrects_the_prediction():
    model = LatencyModel(measured())
    for _ in range(100):
        model.observe_forward(LARGE, 1, 12.0, alone=True)
    assert model.forward_ms(LARGE) == pytest.approx(12.0, rel=0.05)


def test_a_slow_host_slows_points_nobody_used_and_they_recover_with_it():
    model = LatencyModel(measured())
    for _ in range(25):
        model.observe_forward(SMALL, 1, 4.0, alone=True)
    assert model.forward_ms(LARGE) > 8.0
    for _ in range(50):
        model.observe_forward(SMALL, 1, 2.0, alone=True)
    assert model.forward_ms(LARGE) == pytest.approx(6.0, rel=0.1)


def test_one_slow_run_moves_the_median_little():
    model = LatencyModel(measured())
    model.observe_forward(SMALL, 1, 200.0, alone=True)
    assert model.forward_ms(SMALL) < 2.2


def test_what_was_learnt_under_load_does_not_slow_a_lone_request():
    model = LatencyModel(measured())
    image = decode_work(ImageHeader("JPEG", 500, 375), 50_000, 100)
    before = model.decode_ms(image)
    for _ in range(100):
        model.observe_forward(LARGE, 1, 24.0, alone=False)
        model.observe_decode(image, 4 * before, alone=False)
    assert model.busy_pace > 2.0
    assert model.decode_pace == pytest.approx(4.0, rel=0.05)
    assert model.decode_ms(image) == before
    assert model.forward_ms(SMALL) == pytest.approx(2.0)


@pytest.mark.parametrize(
    "odd", [ImageHeader("PPM", 500, 375, 1), ImageHeader("JPEG", 5000, 4000, 1)]
)
@pytest.mark.parametrize("alone", [True, False])
def test_sixty_slow_images_teach_nothing_about_others(odd, alone):
    model, control = LatencyModel(measured()), LatencyModel(measured())
    photo = decode_work(ImageHeader("JPEG", 500, 375, 1), 50_000, 100)
    for _ in range(60):
        model.observe_decode(decode_work(odd, 190_000, 100), 2000.0, alone=alone)
    assert model.decode_ms(photo) == control.decode_ms(photo)
    assert model.decode_pace == control.decode_pace


def test_drift_is_seen_and_passes():
    model = LatencyModel(measured())
    assert model.drift == 1.0
    for _ in range(30):
        model.observe_forward(SMALL, 1, 6.0, alone=True)
    assert model.has_drifted
    for _ in range(60):
        model.observe_forward(SMALL, 1, 2.0, alone=True)
    assert not model.has_drifted


def test_an_unmeasured_resolution_scales_with_its_pixels():
    model = LatencyModel(measured())
    assert model.forward_ms((256, "float")) == pytest.approx(24.0)
    assert model.forward_ms((64, "int8")) == pytest.approx(1.0)  # half of float


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


def test_jpegs_are_decoded_at_reduced_scale_and_the_work_says_so():
    header = ImageHeader("JPEG", 4000, 3000)
    assert decode_work(header, 10, 110).decoded_megapixels == pytest.approx(12 / 64)
    assert decode_work(header, 10, 1000).decoded_megapixels == pytest.approx(12 / 4)
    assert decode_work(ImageHeader("PNG", 4000, 3000), 10, 110).decoded_megapixels == 12


@pytest.mark.parametrize("image_format", ["JPEG", "PNG"])
@pytest.mark.parametrize("at_least", [64, 200, 500, 2000])
def test_the_times_at_all_scales_are_those_of_each(image_format, at_least):
    model, header = LatencyModel(measured()), ImageHeader(image_format, 1200, 900)
    work = decode_work(header, 300_000, at_least)
    for _ in range(20):
        model.observe_decode(work, 30.0, alone=True)
    times = model.decode_times(header, 300_000)
    assert times.at(at_least) == pytest.approx(model.decode_ms(work))


def test_a_larger_image_is_predicted_to_take_longer():
    model = LatencyModel(measured())
    small = decode_work(ImageHeader("JPEG", 500, 375), 50_000, 100)
    large = decode_work(ImageHeader("JPEG", 4000, 3000), 3_000_000, 100)
    assert model.decode_ms(small) < model.decode_ms(large)
    for _ in range(200):
        model.observe_decode(large, 500.0, alone=True)
    assert model.decode_ms(large) == pytest.approx(500.0, rel=0.01)


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
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        Measurements.from_json(data)


@given(
    st.lists(st.tuples(st.integers(1, 16), st.floats(0.1, 100)), max_size=200), st.integers(1, 15)
)
def test_a_larger_batch_is_never_predicted_faster(observed, n):
    model = LatencyModel(measured())
    for batch, ms in observed:
        model.observe_forward(LARGE, batch, ms, alone=batch == 1)
    assert model.forward_ms(LARGE, n) <= model.forward_ms(LARGE, n + 1) + 1e-9
