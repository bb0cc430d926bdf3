"""The OpenAPI document against the running service: whatever it allows, or forbids, no 5xx."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

EXAMPLES = 8
# Reloading measures the host again: slow, and tested elsewhere.
LEFT_OUT = {"POST /admin/reload"}

pytestmark = pytest.mark.slow


def bombard(operation, mode: GenerationMode) -> list[tuple[int, bytes]]:
    """Send requests that the document allows (or forbids); the answers' status and body."""
    answers: list[tuple[int, bytes]] = []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case):
        response = case.call(timeout=60)
        answers.append((response.status_code, response.content))

    try:
        send()
    except Unsatisfiable:
        # Without parameters, or with only a name in the path, no request can be wrong.
        assert mode is GenerationMode.NEGATIVE
    return answers


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_operation_fails(running, mode):
    document = schemathesis.openapi.from_url(f"{running.url}/openapi.json")
    reached: set[str] = set()
    failed: list[str] = []
    for found in document.get_all_operations():
        operation = found.ok()
        name = f"{operation.method.upper()} {operation.path}"
        if name in LEFT_OUT:
            continue
        for status, body in bombard(operation, mode):
            reached.add(name)
            if status >= 500:
                failed.append(f"{name}: {status} {body[:300]!r}")
    assert failed == []
    assert {"POST /classify", "POST /feedback", "POST /v2/models/{name}/infer"} <= reached
