"""The yardstick of service levels: what an idle host does, whatever became of it since."""

import pytest

from san_core.frontier import OperatingPoint
from san_core.preprocessing import ImageHeader
from service.latency.catalogue import Listing
from service.latency.curves import Curve, Measurements
from service.latency.decode_cost import DecodeCost
from service.latency.idle import IdleHost
from service.latency.model import LatencyModel

PHOTO = ImageHeader("JPEG", 500, 375)


@pytest.fixture
def host():
    measurements = Measurements(
        curves={(64, "float"): Curve((1,), (2.0,)), (224, "float"): Curve((1,), (10.0,))},
        decode={"JPEG": DecodeCost((1.0, 0.0, 0.0, 10.0))},
    )
    frontier = [
        Listing(OperatingPoint(64), 0.3, 0.3),
        Listing(OperatingPoint(224), 0.7, 0.7),
    ]
    return IdleHost(LatencyModel(measurements), frontier, lambda resolution: resolution)


@pytest.mark.parametrize(
    ("allowed_ms", "feasible", "accuracy"),
    [(3.0, False, None), (4.0, True, 0.3), (20.0, True, 0.7), (None, True, 0.7)],
)
def test_a_budget_is_feasible_if_an_idle_host_keeps_it(host, allowed_ms, feasible, accuracy):
    idle = host.look(None, 0, allowed_ms)
    assert (idle.feasible, idle.accuracy) == (feasible, accuracy)


def test_decoding_counts_at_the_scale_the_point_needs(host):
    # 64 px: an eighth of the pixels are decoded; 224 px: all of them, 1.9 ms more.
    assert host.look(None, 0, 16.0).accuracy == 0.7
    assert host.look(PHOTO, 50_000, 16.0).accuracy == 0.3
    assert host.look(PHOTO, 50_000, 25.0).accuracy == 0.7


def test_who_demands_accuracy_gets_no_credit_for_a_fast_point(host):
    assert not host.look(None, 0, 5.0, min_accuracy=0.5).feasible
    assert host.look(None, 0, 20.0, min_accuracy=0.5).feasible
