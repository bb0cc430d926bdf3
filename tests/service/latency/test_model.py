import pytest
from hypothesis import given
from hypothesis import strategies as st

from san_core.preprocessing import ImageHeader
from service.latency.decode_cost import decode_work
from service.latency.model import LatencyModel
from tests.service.latency.times import LARGE, SMALL, measured


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


def test_building_learns_quickly_upwards():
    model = LatencyModel(measured())
    model.observe_build("float", 300.0)
    assert model.build_ms("float") == 200.0
    model.observe_build("float", 100.0)
    assert model.build_ms("float") == pytest.approx(190.0)
    assert model.build_ms("int8") == pytest.approx(190.0)


@given(
    st.lists(st.tuples(st.integers(1, 16), st.floats(0.1, 100)), max_size=200), st.integers(1, 15)
)
def test_a_larger_batch_is_never_predicted_faster(observed, n):
    model = LatencyModel(measured())
    for batch, ms in observed:
        model.observe_forward(LARGE, batch, ms, alone=batch == 1)
    assert model.forward_ms(LARGE, n) <= model.forward_ms(LARGE, n + 1) + 1e-9
