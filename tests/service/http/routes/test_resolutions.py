import threading

from service.engines import torch_engine
from tests.service.conftest import CLASSES, picture, serving, until
from tests.service.fakes import GatedEngine


def test_counting_multiply_adds_does_not_hold_up_the_event_loop(make_settings, monkeypatch):
    threads = []
    count = torch_engine.cost

    def watched(network, resolution):
        threads.append(threading.current_thread().name)
        return count(network, resolution)

    monkeypatch.setattr(torch_engine, "cost", watched)
    with serving(make_settings()) as server, server.client() as client:
        assert client.get("/resolutions").status_code == 200
    assert threads
    assert {name.partition("-")[0] for name in threads} == {"build"}


def test_an_evicted_point_comes_back_for_budgets_that_are_too_short_to_wait_for_it(
    running, client, monkeypatch
):
    deployment = running.service.deployment
    best = deployment.frontier[-1].point
    monkeypatch.setattr(deployment.model, "build_ms", lambda *_: 1e6)
    until(lambda: deployment.is_complete and best in deployment.cache)
    client.delete(f"/resolutions/{best.resolution}")
    answer = client.post("/classify?budget_ms=60000", content=picture()).json()
    assert answer["resolution"] < best.resolution
    until(lambda: best in deployment.cache)
    answer = client.post("/classify?budget_ms=60000", content=picture()).json()
    assert answer["resolution"] == best.resolution


def test_points_that_failed_or_do_not_fit_are_not_restored(running, monkeypatch):
    deployment = running.service.deployment
    best = deployment.frontier[-1].point
    asked = []
    monkeypatch.setattr(deployment.cache, "request", lambda *given: asked.append(given))
    with monkeypatch.context() as full:
        full.setattr(deployment.cache, "has_room_for", lambda _: False)
        deployment.restore(best)
    monkeypatch.setattr(deployment, "_failed", {best})
    deployment.restore(best)
    assert asked == []


def test_what_is_deleted_on_its_way_does_not_appear(make_settings):
    engine = GatedEngine(len(CLASSES))
    with serving(make_settings(), engine=engine) as server, server.client() as client:
        cache = server.service.deployment.cache
        until(lambda: not cache.building())
        engine.building.clear()
        assert client.post("/resolutions/72/warm").json()["state"] == "building"
        until(cache.building)
        gone = client.delete("/resolutions/72")
        engine.building.set()
        assert (gone.status_code, gone.json()["state"]) == (200, "evicted")
        until(lambda: not cache._building)
        assert 72 not in {point.resolution for point in cache.points()}
        assert client.delete("/resolutions/72").status_code == 404


def test_the_smallest_budget_is_that_of_an_idle_service(running, client, monkeypatch):
    def smallest():
        points = client.get("/resolutions").json()["operating_points"]
        return [p["smallest_budget_ms"] for p in points]

    scheduler = running.service.deployment.scheduler
    before = smallest()
    for _ in range(300):
        scheduler.whole.busy.learn(scheduler.schedule._seen_ms, kept=False)
    assert max(smallest()) < 2 * max(before)
