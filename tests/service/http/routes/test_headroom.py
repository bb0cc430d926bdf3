"""What a replica says of itself over HTTP."""

from service.fleet.headroom import parse
from tests.service.conftest import picture

HUGE = 60_000


def test_headroom_is_a_few_numbers_and_a_header_of_every_answer(client):
    told = client.get("/headroom").json()
    accuracies = [point["accuracy"] for point in told["points"]]
    budgets = [point["budget_ms"] for point in told["points"]]
    assert accuracies == sorted(accuracies)
    assert budgets == sorted(budgets)
    assert budgets[0] > 0
    answer = client.post(f"/classify?budget_ms={HUGE}", content=picture())
    headroom = parse(answer.headers["endpoint-load-metrics"].encode())
    assert headroom is not None
    assert headroom.expected(HUGE) == round(accuracies[-1], 4)


def test_a_refusal_carries_it_too(client):
    refused = client.post("/classify", content=b"no image")
    assert refused.status_code == 400
    assert parse(refused.headers["endpoint-load-metrics"].encode()) is not None
    assert "endpoint-load-metrics" not in client.get("/resolutions").headers
