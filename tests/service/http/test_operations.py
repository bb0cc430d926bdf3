import re
import threading
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.engines.build_limits import MOST_PER_CLIENT, MOST_WARMING
from service.settings import Settings
from tests.service.conftest import CLASSES, picture, serving, until, write_bundle
from tests.service.fakes import GatedEngine
from tests.service.http.test_errors import check_problem

HUGE = 1e5


def test_resolutions_list_every_point_with_what_it_costs(client):
    found = client.get("/resolutions").json()
    assert (found["model"], found["engine"], found["device"]) == ("tiny", "torch", "cpu")
    points = found["operating_points"]
    assert {(p["resolution"], p["mode"]) for p in points} == {
        (r, m) for r in (32, 48, 64, 96) for m in ("proxy", "data_free")
    }
    provenance = {p["resolution"]: p["provenance"] for p in points}
    assert provenance == {32: "trained", 48: "interpolated", 64: "trained", 96: "trained"}
    for point in points:
        assert set(point["latency_ms"]) == {"1", "4"}
        for latency in point["latency_ms"].values():
            assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"]
        assert point["accuracy"]["dataset"] == "made up"
        assert point["macs"] > 0
        assert point["weight_bytes"] > 0
    assert any(p["frontier"] for p in points)
    macs = {p["resolution"]: p["macs"] for p in points}
    assert macs[32] < macs[48] < macs[64] < macs[96]


def test_only_frontier_points_are_chosen(client):
    points = client.get("/resolutions").json()["operating_points"]
    frontier = {(p["resolution"], p["mode"]) for p in points if p["frontier"]}
    for budget in (0.001, 10, 100, HUGE):
        answer = client.post(f"/classify?budget_ms={budget}", content=picture()).json()
        assert (answer["resolution"], answer["mode"]) in frontier


def test_the_cache_is_managed(client):
    client.delete("/resolutions/72")
    check_problem(client.delete("/resolutions/72"), 404)
    warmed = client.post("/resolutions/72/warm")
    assert (warmed.status_code, warmed.json()["state"]) == (202, "building")
    # A request for it waits for the same build and finds it ready afterwards.
    client.post("/classify?resolution=72", content=picture())
    assert client.post("/resolutions/72/warm").json()["state"] == "cached"
    assert client.delete("/resolutions/72").json()["state"] == "evicted"
    assert (
        client.post("/classify?resolution=72", content=picture()).json()["weights"] == "generated"
    )


def test_few_points_are_made_ready_at_a_time(make_settings, monkeypatch):
    with serving(make_settings()) as running, running.client() as client:
        cache = running.service.deployment.cache
        until(lambda: not cache.building())
        over = threading.Event()
        monkeypatch.setattr(cache, "_build", lambda _: over.wait() and None)
        try:
            seen = [client.post(f"/resolutions/{r}/warm").status_code for r in range(33, 97, 2)]
        finally:
            over.set()
    assert seen.count(202) == MOST_WARMING
    assert set(seen[MOST_WARMING:]) == {429}


def test_feedback_counts_once_and_only_for_known_requests(client):
    answer = client.post("/classify", content=picture()).json()
    best = answer["predictions"][0]
    given = {"request_id": answer["request_id"], "label": best["label"]}
    judged = client.post("/feedback", json=given)
    assert judged.json() == {
        "request_id": answer["request_id"],
        "correct": True,
        "in_top5": True,
        "resolution": answer["resolution"],
    }
    check_problem(client.post("/feedback", json=given), 409)
    check_problem(client.post("/feedback", json=given | {"request_id": "unknown"}), 404)
    check_problem(client.post("/feedback", json={"request_id": "x"}), 422)
    check_problem(client.post("/feedback", json={"request_id": "x", "index": 8}), 422)
    check_problem(client.post("/feedback", json={"request_id": "x", "label": "no such"}), 422)
    check_problem(client.post("/feedback", json=given | {"index": 1}), 422)


def test_feedback_of_any_size_is_not_read(client):
    huge = {"request_id": "x" * 100_000, "index": 1}
    check_problem(client.post("/feedback", json=huge), 413)
    check_problem(client.post("/feedback", content=iter([b" " * 40_000] * 2)), 413)


def test_probes_and_version(client):
    assert client.get("/healthz").json()["status"] == "alive"
    assert client.get("/readyz").json()["status"] == "ready"
    version = client.get("/version").json()
    assert (version["model"]["name"], version["model"]["version"]) == ("tiny", "1")
    assert version["engine"] == "torch"
    assert re.fullmatch(r"[0-9a-f]{64}", version["model"]["sha256"])


def test_not_ready_before_the_host_was_measured(make_settings, tmp_path, monkeypatch):
    import asyncio

    import service.serving.bundles.swapping as swapping

    gate = asyncio.Event()
    original = swapping.deploy

    async def held(*args):
        await gate.wait()
        return await original(*args)

    monkeypatch.setattr(swapping, "deploy", held)
    with serving(make_settings(), ready=False) as running, running.client() as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/version").json()["model"] is None
        for response in (
            client.get("/readyz"),
            client.get("/resolutions"),
            client.post("/classify", content=picture()),
        ):
            problem = check_problem(response, 503)
            assert int(response.headers["retry-after"]) >= 1
            assert problem["progress"] == {"done": 0, "total": 4, "seconds_left": None}
            assert problem["detail"].startswith("The service is starting: waiting ")


def test_a_start_says_how_far_it_is_and_the_next_one_knows_how_long_it_takes(
    make_settings, tmp_path
):
    settings = make_settings(cache_dir=tmp_path)

    def while_building():
        engine = GatedEngine(len(CLASSES))
        engine.building.clear()
        with serving(settings, engine=engine, ready=False) as running, running.client() as client:
            until(lambda: client.get("/readyz").json()["progress"]["done"] == 1)
            for response in (client.get("/readyz"), client.post("/classify", content=picture())):
                problem = check_problem(response, 503)
                assert problem["detail"] == (
                    "The service is starting: building the first networks."
                )
            engine.building.set()
            until(lambda: running.service.is_ready)
            assert "progress" not in check_problem(client.get("/nowhere"), 404)
            until(lambda: running.service.deployment.is_complete)
            return problem["progress"], running.service.deployment.model.measurements.start_ms

    first, took_ms = while_building()
    again, _ = while_building()
    assert (first["done"], first["total"]) == (again["done"], again["total"]) == (1, 4)
    assert 0 <= again["seconds_left"] <= round(sum(took_ms[1:]) / 1000, 1)
    assert again["seconds_left"] >= round(sum(took_ms[2:]) / 1000, 1)


def metrics_of(client):
    text = client.get("/metrics").text
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_metrics_tell_what_happened(make_settings):
    with serving(make_settings()) as running, running.client() as client:
        for _ in range(3):
            client.post(f"/classify?budget_ms={HUGE}", content=picture())
        client.post("/classify?budget_ms=0.001", content=picture())
        client.post("/classify", content=b"nothing")
        answer = client.post("/classify?resolution=33", content=picture()).json()
        client.post("/feedback", json={"request_id": answer["request_id"], "index": 0})
        found = metrics_of(client)
    key = (("mode", "proxy"), ("outcome", "answered"), ("resolution", "96"))
    version = answer["model_version"]
    assert found[("san_requests_total", (*key, ("version", version)))] == 3
    none = (("mode", "none"), ("outcome", "failed"), ("resolution", "none"), ("version", "none"))
    assert found[("san_requests_total", none)] == 0  # there before the first failure
    assert found[("san_request_duration_seconds_count", key)] == 3
    assert found[("san_budgets_total", (("result", "met"), ("version", version)))] == 3
    assert found[("san_budgets_total", (("result", "infeasible"), ("version", version)))] == 1
    assert found[("san_errors_total", (("type", "not-an-image"),))] == 1
    assert found[("san_feedback_known_total", (("resolution", "other"),))] == 1
    assert found[("san_ready", ())] == 1
    assert found[("san_stage_duration_seconds_count", (("stage", "decode"),))] == 5
    assert found[("san_weight_cache_misses_total", ())] >= 1


def test_whatever_clients_send_the_number_of_series_is_bounded(make_settings):
    with serving(make_settings()) as running, running.client() as client:
        # One client gets a few builds a minute: the first sizes are answered, then some refused.
        for resolution in range(33, 33 + MOST_PER_CLIENT + 1):
            client.post(f"/classify?resolution={resolution}", content=picture())
        client.get("/a")
        before = {key for key in metrics_of(client) if key[0].startswith("san_")}
        for resolution in range(50, 60):
            client.post(f"/classify?resolution={resolution}", content=picture())
            client.get(f"/{resolution}")
        after = {key for key in metrics_of(client) if key[0].startswith("san_")}
    assert after == before


def test_every_metric_is_documented_and_every_documented_metric_exists(
    running, client, monkeypatch
):
    engine = running.service.deployment.engine
    # Only a GPU's engine has metrics of its own.
    monkeypatch.setattr(engine, "metrics", lambda: {"lost": 0.0}, raising=False)
    client.post("/classify", content=picture())
    families = text_string_to_metric_families(client.get("/metrics").text)
    exported = {f.name for f in families if f.name.startswith("san_")}
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    documented = {
        re.sub(r"_total$|_info$", "", name) for name in re.findall(r"^\| `(san_\w+)`", page, re.M)
    }
    assert {re.sub(r"_info$", "", name) for name in exported} == documented


def test_openmetrics_for_those_who_ask(client):
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    response = client.get("/metrics", headers=accept)
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


def test_a_bucket_of_durations_names_the_trace_that_fell_into_it_last(client):
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    assert client.post("/classify", content=picture(), headers=headers).status_code == 200
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    text = client.get("/metrics", headers=accept).text
    found = re.findall(r"(san_request_duration_seconds)_bucket.*# \{trace_id=\"(\w+)\"\}", text)
    assert ("san_request_duration_seconds", trace) in found


def test_api_keys(make_settings, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# comment\nfrom-file   # the second client\n")
    settings: Settings = make_settings(
        api_keys="one,two", api_keys_file=keys, metrics_keys="prometheus", admin_keys="root"
    )
    with serving(settings) as running, running.client() as client:
        for key in ("one", "two", "from-file"):
            for header in ({"Authorization": f"Bearer {key}"}, {"X-API-Key": key}):
                assert (
                    client.post("/classify", content=picture(), headers=header).status_code == 200
                )
        for header in (
            {},
            {"X-API-Key": "three"},
            {"X-API-Key": "prometheus"},
            {"Authorization": "Basic one"},
        ):
            refused = client.post("/classify", content=picture(), headers=header)
            check_problem(refused, 401)
            assert refused.headers["www-authenticate"].startswith("Bearer")
        check_problem(client.get("/metrics", headers={"X-API-Key": "one"}), 401)
        assert client.get("/metrics", headers={"X-API-Key": "prometheus"}).status_code == 200
        check_problem(client.post("/admin/reload", headers={"X-API-Key": "one"}), 401)
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 200


def test_reload_swaps_the_bundle_and_a_broken_one_leaves_the_old(make_settings, tmp_path):
    path = write_bundle(tmp_path / "served.safetensors")
    with (
        serving(make_settings(bundle=path, cache_dir=tmp_path)) as running,
        running.client() as client,
    ):
        before = client.post("/classify", content=picture()).json()
        path.write_bytes(b"broken")
        problem = check_problem(client.post("/admin/reload"), 409)
        assert "not a bundle" in problem["detail"]
        assert (
            client.post("/classify", content=picture()).json()["predictions"]
            == before["predictions"]
        )
        write_bundle(path, name="newer", version="2", seed=1)
        assert client.post("/admin/reload").json()["model"]["name"] == "newer"
        given = {"request_id": before["request_id"], "label": "a class of the old bundle"}
        problem = check_problem(client.post("/feedback", json=given), 409)
        assert "answered by tiny 1, and newer 2" in problem["detail"]
        after = client.post("/classify", content=picture()).json()
        assert (after["model"], after["model_version"]) == ("newer", "2")
        assert after["predictions"] != before["predictions"]
        found = metrics_of(client)
        assert found[("san_reloads_total", (("result", "swapped"),))] == 1
        assert found[("san_reloads_total", (("result", "failed"),))] == 1


def test_the_openapi_document_tells_the_truth_about_classify(client):
    document = client.get("/openapi.json").json()
    post = document["paths"]["/classify"]["post"]
    names = {p["name"] for p in post["parameters"]}
    assert {"budget_ms", "resolution", "mode", "min_accuracy", "top_k", "on_miss"} <= names
    assert "multipart/form-data" in post["requestBody"]["content"]
    assert {"200", "400", "413", "415", "422", "429", "503"} <= set(post["responses"])


def test_every_error_is_documented_as_a_problem(client):
    document = client.get("/openapi.json").json()
    assert "HTTPValidationError" not in document["components"]["schemas"]
    assert {"ProblemSchema", "FeedbackRequest"} <= set(document["components"]["schemas"])
    operations = {
        f"{method} {path}": found["responses"]
        for path, methods in document["paths"].items()
        for method, found in methods.items()
    }
    for responses in operations.values():
        for status, response in responses.items():
            if status == "default" or int(status) >= 400:
                assert set(response["content"]) == {"application/problem+json"}
    for name, statuses in {
        "post /feedback": {"404", "409", "413", "422", "503"},
        "post /resolutions/{resolution}/warm": {"422", "503"},
        "delete /resolutions/{resolution}": {"404", "422", "503"},
        "get /resolutions": {"503"},
        "get /readyz": {"503"},
        "post /admin/reload": {"403", "409"},
        "get /v2/models/{name}": {"404", "503"},
    }.items():
        assert statuses <= set(operations[name])


def test_the_documented_inference_request_works(client):
    document = client.get("/openapi.json").json()
    post = document["paths"]["/v2/models/{name}/infer"]["post"]
    example = post["requestBody"]["content"]["application/json"]["example"]
    answer = client.post("/v2/models/tiny/infer", json=example).json()
    assert answer["id"] == example["id"]
    assert answer["outputs"][0]["shape"] == [1, 5]


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_by_head(client, path):
    answer = client.head(path)
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("path", ["/docs", "/"])
def test_pages_are_served_where_they_exist(client, path):
    assert client.get(path).status_code in (200, 404)


def test_pages_of_other_origins_may_call_if_the_operator_says_so(make_settings, client):
    page = {"Origin": "https://app.example.org"}
    asks = page | {"Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in client.get("/version", headers=page).headers
    settings = make_settings(cors_origins="https://app.example.org", api_keys=("secret",))
    with serving(settings, ready=False) as running, running.client() as there:
        preflight = there.options("/classify?budget_ms=5", headers=asks)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "https://app.example.org"
        refused = there.get("/version", headers=page)  # without a key, but readable by the page
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "https://app.example.org"
        other = there.options("/classify", headers=asks | {"Origin": "https://evil.example.org"})
        assert "access-control-allow-origin" not in other.headers
