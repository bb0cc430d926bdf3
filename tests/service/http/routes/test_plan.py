"""What would be chosen, without an image."""

from tests.service.conftest import picture


def test_the_plan_is_what_a_request_then_gets(client):
    told = client.get("/plan", params={"budget_ms": 50_000}).json()
    assert told["fits"]
    assert told["verdict"] == "serve"
    answer = client.post("/classify?budget_ms=50000", content=picture()).json()
    for same in ("resolution", "mode", "precision", "expected_accuracy", "accuracy_source"):
        assert told[same] == answer[same]
    assert "most accurate" in told["reason"]
    assert told["predicted_ms"] > 0


def test_a_larger_image_takes_longer(client):
    small = client.get("/plan?budget_ms=50000&bytes=20000&width=200&height=150").json()
    large = client.get("/plan?budget_ms=50000&bytes=9000000&width=6000&height=4000").json()
    assert large["predicted_ms"] > small["predicted_ms"]


def test_what_cannot_be_met_says_so_and_nothing_is_remembered(client, running):
    before = client.get("/metrics").text.count("\nsan_requests_total")
    late = client.get("/plan?budget_ms=0.001").json()
    assert (late["fits"], late["verdict"]) == (False, "late")
    assert client.get("/plan?budget_ms=0.001&on_miss=refuse").json()["verdict"] == "impossible"
    assert client.get("/plan?min_accuracy=0.99").json()["verdict"] == "inaccurate"
    assert client.get("/metrics").text.count("\nsan_requests_total") == before


def test_a_misspelt_parameter_is_told(client):
    refused = client.get("/plan?budget=5")
    assert refused.status_code == 422
    assert "did you mean budget_ms" in refused.json()["detail"]
    assert client.get("/plan?width=0").status_code == 422
