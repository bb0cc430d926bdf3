"""Times of a host that the tests know."""

from service.latency.curves import Curve, Measurements
from service.latency.decode_cost import DecodeCost

SMALL, LARGE = (64, "float"), (128, "float")


def measured():
    return Measurements(
        curves={SMALL: Curve((1, 8), (2.0, 9.0)), LARGE: Curve((1, 8), (6.0, 40.0))},
        decode={"JPEG": DecodeCost((1.0, 0.0, 2.0, 4.0))},
        build_ms={"float": 100.0},
    )
