"""What a request costs beyond its parts is known before the first one comes."""

from service.latency.model import ASSUMED
from tests.service.conftest import picture, serving


def test_overhead_is_learnt_and_nothing_counted_before_the_first_request(make_settings):
    with serving(make_settings()) as running, running.client() as client:
        service = running.service
        model = service.deployment.model
        learnt = model.overhead_ms()
        assert learnt != ASSUMED.overhead_ms
        assert service.admission.facts.admitted == 0
        assert not service.ledger.budgets
        client.post("/classify", content=picture())
        assert service.admission.facts.admitted == 1
        assert model.overhead_ms() != learnt


def test_limits_that_no_photograph_passes_do_not_keep_the_service_from_starting(make_settings):
    with serving(make_settings(max_megapixels=0.001)) as running, running.client() as client:
        assert running.service.is_ready
        assert client.post("/classify", content=picture(30, 30)).status_code == 200
