import pytest

from san_core.preprocessing import ImageHeader
from service.latency.decode_cost import DecodeCost, DecodeWork, decode_work
from service.latency.model import LatencyModel
from tests.service.latency.times import measured


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
