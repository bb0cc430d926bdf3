import asyncio
from types import SimpleNamespace

from san_core.frontier import OperatingPoint
from service.request.record import RequestRecord
from service.request.terms import Terms
from service.serving.agreement import Agreement
from service.settings import Settings
from tests.service.fakes import FakeClock


def test_a_sample_of_a_replaced_bundle_is_not_compared():
    served = SimpleNamespace(manifest=SimpleNamespace(name="m", version="2"), frontier=())
    agreement = Agreement(
        SimpleNamespace(deployment=served), None, None, None, None, Settings(), FakeClock()
    )
    record = RequestRecord("id", Terms(), "m", "1", point=OperatingPoint(64))
    agreement._fraction = 1.0
    agreement.offer(record, b"image", 3)
    (sample,) = agreement._pending
    asyncio.run(agreement.compare(sample))  # or it would ask for the best point of the frontier
