"""Swapping the bundle: at a bad moment, and what is ready when it is done."""

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvicorn

from benchmarks.servers.bundles import new_version
from service import app
from service.errors import ReloadError
from service.http.connection.server import Server
from service.latency.model import ASSUMED
from service.serving.bundles import swapping
from tests.service.conftest import CLASSES, picture, serving, until, write_bundle
from tests.service.fakes import GatedEngine
from tests.service.http.test_errors import check_problem


@pytest.fixture
def engines(monkeypatch):
    """The engines chosen so far; the first one builds nothing before it is told to."""
    made = []

    def choose(*_):
        engine = GatedEngine(len(CLASSES))
        if not made:
            engine.building.clear()
        made.append(engine)
        return engine

    monkeypatch.setattr(app, "choose_engine", choose)
    yield made
    for engine in made:
        engine.building.set()


def test_a_swap_waits_for_the_first_bundle_and_is_ready_when_it_is_done(
    make_settings, own_bundle, engines
):
    with (
        serving(make_settings(bundle=own_bundle), ready=False) as running,
        running.client() as client,
        ThreadPoolExecutor(1) as pool,
    ):
        until(lambda: engines)
        new_version(own_bundle, "2")
        swap = pool.submit(client.post, "/admin/reload")
        assert client.get("/readyz").status_code == 503
        assert len(engines) == 1
        engines[0].building.set()
        assert swap.result().json()["reload"] == "swapped"
        first, second = engines
        until(lambda: first.closed)
        assert not second.closed
        deployment = running.service.deployment
        assert deployment.engine is second
        assert {x.point for x in deployment.frontier} <= set(deployment.cache.points())
        assert deployment.model.overhead_ms() != ASSUMED.overhead_ms


def test_who_is_shutting_down_swaps_nothing(make_settings, engines):
    with serving(make_settings(), ready=False) as running, running.client() as client:
        until(lambda: engines)
        engines[0].building.set()
        until(lambda: running.service.is_ready)
        running.service.leaving = True
        refused = client.post("/admin/reload")
        assert refused.status_code == ReloadError.status
        assert "shutting down" in refused.json()["detail"]
        assert len(engines) == 1


def test_sighup_is_taken_while_the_service_starts(monkeypatch):
    reloaded = []

    class Starting:
        async def reload(self):
            reloaded.append(True)

    async def startup(*_):
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.01)

    monkeypatch.setattr(uvicorn.Server, "startup", startup)
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    try:
        asyncio.run(Server(uvicorn.Config(None), Starting()).startup())
    finally:
        signal.signal(signal.SIGHUP, before)
    assert reloaded


def test_a_service_leaves_with_the_terminal_it_was_started_in(monkeypatch):
    class Serving:
        leaving = False
        drained = False

        def drain(self):
            self.drained = True

    terminal = [True]
    monkeypatch.setattr(os, "isatty", lambda _: terminal[0])
    server = Server(uvicorn.Config(None), Serving())
    terminal[0] = False

    async def startup(*_):
        os.kill(os.getpid(), signal.SIGHUP)
        while not server.should_exit:  # noqa: ASYNC110 (no event tells)
            await asyncio.sleep(0.01)

    monkeypatch.setattr(uvicorn.Server, "startup", startup)
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    try:
        asyncio.run(asyncio.wait_for(server.startup(), 10))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert server._service.drained


def test_a_swap_does_not_wait_for_ever_until_all_is_ready(
    make_settings, own_bundle, engines, monkeypatch
):
    monkeypatch.setattr(swapping, "_PREPARE_S", 0.2)
    with (
        serving(make_settings(bundle=own_bundle), ready=False) as running,
        running.client() as client,
    ):
        until(lambda: engines)
        engines[0].building.set()
        until(lambda: running.service.is_ready)
        before = running.service.deployment
        monkeypatch.setattr(type(before), "warm_frontier", lambda _: asyncio.sleep(3600))
        new_version(own_bundle, "2")
        assert client.post("/admin/reload").status_code == 200
        assert running.service.deployment is not before
        assert client.post("/classify", content=picture()).status_code == 200


def test_a_file_that_did_not_change_is_answered_without_building_anything(
    make_settings, own_bundle, engines
):
    with (
        serving(make_settings(bundle=own_bundle), ready=False) as running,
        running.client() as client,
    ):
        until(lambda: engines)
        engines[0].building.set()
        until(lambda: running.service.is_ready)
        before = running.service.deployment
        for _ in range(20):
            told = client.post("/admin/reload")
            assert told.status_code == 200
            assert told.json()["reload"] == "unchanged"
        assert len(engines) == 1
        assert running.service.deployment is before
        assert running.service.ledger.reloads == {"unchanged": 20}
        own_bundle.write_bytes(own_bundle.read_bytes()[:-1])
        assert client.post("/admin/reload").status_code == ReloadError.status
        own_bundle.unlink()
        assert client.post("/admin/reload").status_code == ReloadError.status


def test_few_bundles_are_made_ready_a_minute_however_often_they_change(
    make_settings, own_bundle, engines
):
    with (
        serving(make_settings(bundle=own_bundle), ready=False) as running,
        running.client() as client,
    ):
        until(lambda: engines)
        engines[0].building.set()
        until(lambda: running.service.is_ready)
        for _ in range(10):  # files that cannot be read cost little and do not count
            own_bundle.write_bytes(b"broken")
            assert client.post("/admin/reload").status_code == ReloadError.status
        write_bundle(own_bundle)
        for version in range(2, 6):
            new_version(own_bundle, str(version))
            assert client.post("/admin/reload").json()["model"]["version"] == str(version)
        new_version(own_bundle, "6")
        for path in ("/admin/reload", f"/admin/candidate?file={own_bundle.name}"):
            refused = check_problem(client.post(path), 429)
            assert "4 bundles were loaded within a minute" in refused["detail"]
        assert 0 < refused["retry_after_ms"] <= 60_000
        assert client.get("/version").json()["model"]["version"] == "5"
        assert len(engines) == 5
        assert running.service.ledger.reloads["failed"] == 10
