"""The OpenAPI document against the running service: no 5xx, whatever is sent."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from tests.service.conftest import picture

GOOD, BAD = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
WITH_PARAMETERS = (
    "POST /classify",
    "POST /resolutions/{resolution}/warm",
    "DELETE /resolutions/{resolution}",
    "POST /feedback",
)
WITHOUT = ("GET /resolutions", "GET /healthz", "GET /readyz", "GET /version", "GET /metrics")
CASES = [
    *((operation, mode) for operation in WITH_PARAMETERS for mode in (GOOD, BAD)),
    *((operation, GOOD) for operation in WITHOUT),
]


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "mode"), CASES)
def test_no_server_errors(running, operation, mode):
    method, path = operation.split()
    schema = schemathesis.openapi.from_url(f"{running.url}/openapi.json")
    strategy = schema[path][method].as_strategy(generation_mode=mode)

    @given(case=strategy)
    @settings(
        max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    def send(case):
        if path == "/classify":
            case.body = picture()
        response = case.call(timeout=60)
        # 503 is an answer (not ready, draining); a failure is a 500.
        assert response.status_code < 500 or response.status_code == 503, response.text
        if response.status_code >= 400:
            assert response.headers["content-type"][0] == "application/problem+json"

    send()
