"""The OpenAPI document against the running service: no 5xx, whatever is sent."""

from pathlib import Path

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


def test_the_reference_names_every_route_and_each_has_a_summary(client):
    text = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
    routes = {
        (method.upper(), path): operation
        for path, methods in client.get("/openapi.json").json()["paths"].items()
        for method, operation in methods.items()
    }
    assert ("POST", "/classify") in routes
    for (method, path), operation in routes.items():
        # The two that the page is about have chapters of their own; so has the other protocol.
        if path not in ("/classify", "/plan", "/feedback") and not path.startswith("/v2"):
            assert f"{method} {path}" in text
        generated = operation["operationId"].partition(path.strip("/").partition("/")[0])[0]
        assert operation["summary"].lower() != generated.strip("_").replace("_", " ")
