"""A candidate over HTTP, with two real bundles."""

from service.serving.quality import rollout
from tests.service.conftest import picture, serving, until, write_bundle


def test_a_candidate_is_tried_on_live_pictures_and_refused_if_it_is_worse(make_settings, tmp_path):
    served = write_bundle(tmp_path / "served.safetensors")
    write_bundle(tmp_path / "other.safetensors", version="2", seed=5)
    settings = make_settings(
        bundle=served, candidate_fraction=1.0, candidate_agreement=1.0, agreement_fraction=0.0
    )
    with serving(settings) as running, running.client() as client:
        assert client.get("/candidate").json()["stage"] == "none"
        assert client.post("/admin/promote").status_code == 404
        assert client.post("/admin/candidate?file=../etc/passwd").status_code == 422
        missing = client.post("/admin/candidate?file=missing.safetensors")
        assert missing.status_code == 409
        loaded = client.post("/admin/candidate?file=other.safetensors")
        assert loaded.json()["stage"] == "shadow"
        assert loaded.json()["other"]["version"] == "2"
        # Nobody sees it.
        for seed in range(6):
            answer = client.post("/classify", content=picture(64 + seed, 64)).json()
            assert answer["model_version"] == "1"
        until(lambda: client.get("/candidate").json()["pictures"] >= 6)
        refused = client.post("/admin/promote")
        assert refused.status_code == 409
        assert refused.json()["reasons"]
        # Whoever knows better may say so; the old bundle stays for a way back.
        assert client.post("/admin/promote?force=true").json()["stage"] == "promoted"
        answer = client.post("/classify", content=picture()).json()
        assert answer["model_version"] == "2"
        given = {"request_id": answer["request_id"], "index": 0}
        assert client.post("/feedback", json=given).status_code == 200
        assert client.delete("/admin/candidate").json()["serving"]["version"] == "1"
        assert client.post("/classify", content=picture()).json()["model_version"] == "1"
        events = client.get("/candidate").json()["events"]
        assert [e["result"] for e in events] == ["served", "loaded", "promoted", "rolled_back"]
        metrics = client.get("/metrics").text
        assert 'san_bundle_swapped_timestamp_seconds{result="rolled_back",version="2"}' in metrics
        assert 'san_reloads_total{result="rolled_back"} 1.0' in metrics


def test_a_canary_that_disagrees_is_taken_back_by_itself(make_settings, tmp_path, monkeypatch):
    monkeypatch.setattr(rollout, "_CHECK_S", 0.05)
    monkeypatch.setattr(rollout, "_PATIENCE_S", 0.05)  # requests follow each other without a pause
    served = write_bundle(tmp_path / "served.safetensors")
    other = write_bundle(tmp_path / "other.safetensors", version="2", seed=5)
    settings = make_settings(
        bundle=served,
        candidate=other,
        canary=0.5,
        candidate_fraction=1.0,
        candidate_agreement=1.0,
    )
    with serving(settings) as running, running.client() as client:
        until(lambda: client.get("/candidate").json()["stage"] == "canary")
        seen = 0

        def gone():
            nonlocal seen
            seen += 1
            assert client.post("/classify", content=picture(60 + seen, 64)).status_code == 200
            return client.get("/candidate").json()["stage"] == "none"

        until(gone)
        told = client.get("/candidate").json()
        assert told["share"] == 0
        assert "less than 100%" in told["events"][-1]["why"]


def test_a_picture_seen_again_meets_any_budget(make_settings):
    with serving(make_settings(answer_cache_megabytes=1)) as running, running.client() as client:
        first = client.post("/classify", content=picture()).json()
        again = client.post("/classify?budget_ms=60000", content=picture()).json()
        assert again["reason"] == "The same picture was answered before."
        assert again["predictions"] == first["predictions"]
        assert again["resolution"] == first["resolution"]
        other = client.post("/classify", content=picture(70, 64)).json()
        assert other["reason"] != again["reason"]
        pinned = client.post("/classify?resolution=32", content=picture()).json()
        assert pinned["resolution"] == 32
        metrics = client.get("/metrics").text
        assert "san_answer_cache_hits_total 1.0" in metrics
        assert "san_answer_cache_misses_total 2.0" in metrics


def test_a_candidate_that_is_not_there_is_one_sentence_and_the_bundle_serves(
    make_settings, tmp_path, caplog
):
    settings = make_settings(candidate=tmp_path / "missing.safetensors")
    with serving(settings) as running, running.client() as client:
        until(lambda: [r for r in caplog.records if r.levelname == "ERROR"])
        assert client.get("/readyz").status_code == 200
    (error,) = [r for r in caplog.records if r.levelname == "ERROR"]
    assert error.getMessage().startswith("The candidate cannot be served. There is no bundle at ")
    assert error.exc_info is None
