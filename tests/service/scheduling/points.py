"""Points with simple costs, for tests of the rules."""

from san_core.bundle import Accuracy
from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from service.latency.catalogue import Listing
from service.latency.curves import Curve, Measurements
from service.latency.model import LatencyModel
from service.request.request import Request
from service.request.terms import Terms
from service.scheduling.pricing import Host, make_table

POINTS = {64: (1.0, 4.0, 0.25), 128: (2.0, 9.0, 0.6), 160: (3.0, 16.0, 0.7), 224: (5.0, 36.0, 0.75)}
"""resolution: (ms alone, ms in a batch of eight, accuracy)"""


def listing(resolution, precision="float", accuracy=None):
    top1 = POINTS[resolution][2] if accuracy is None else accuracy
    measured = Accuracy(
        resolution=resolution, mode=Mode.PROXY, precision=precision, top1=top1, top5=top1,
        n=2000, dataset="test",
    )  # fmt: skip
    return Listing(OperatingPoint(resolution, Mode.PROXY, precision), top1, top1, measured)


LISTINGS = [listing(resolution) for resolution in POINTS]


def model(**more):
    curves = {(t, "float"): Curve((1, 8), (one, many)) for t, (one, many, _) in POINTS.items()}
    return LatencyModel(Measurements(curves=curves | more.pop("curves", {}), **more))


def table(listings=None, host=None, decode_ms=1.0):
    return make_table(listings or LISTINGS, model(), host or Host(2), 8, lambda _: decode_ms)


def request(budget_ms=50.0, started_ms=0.0, **more):
    terms = {k: more.pop(k) for k in list(more) if k in Terms.__slots__}
    return Request("r", Terms(budget_ms=budget_ms, **terms), started_ms, **more)
