"""An engine whose device is lost, or in which a batch hangs, is given up; a full one is not."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from benchmarks.servers.bundles import new_version
from san_core.bundle import load
from service import app
from service.app import make_service
from service.commands import serve
from service.commands.serve import EXIT_ENGINE_LOST
from service.engines.cuda.engine import CudaEngine
from service.errors import EngineLostError
from service.serving import watchdog
from service.serving.bundles import swapping
from service.serving.tasks import Tasks
from service.serving.watchdog import Watchdog
from tests.service.conftest import picture, serving, until
from tests.service.engines.cuda.graph_device import FailingDevice


class Device(FailingDevice):
    """Building beside running, as CUDA does: nobody is asked where it is."""

    def _inside(self, where):
        self.where = "running"
        yield

    def pinned(self, elements, dtype):
        return torch.zeros(elements, dtype=dtype)

    def capture(self, work, warm_up):
        warm_up()
        return lambda: self.do("replay", work)


def make(bundle, device):
    return CudaEngine(bundle, threads=1, max_batch=2, device="cuda", graphs=device)


def test_a_lost_device_is_told_and_ends_the_process(make_settings, tiny_bundle):
    device = Device()
    settings = make_settings()
    with serving(settings, engine=make(load(tiny_bundle), device)) as running:
        fatal = []
        running.service.on_fatal = fatal.append
        with running.client() as client:
            assert client.post("/classify", content=picture()).status_code == 200
            device.fails["replay"] = [torch.AcceleratorError("CUDA error: device lost")]
            answer = client.post("/classify", content=picture(seed=1))
            assert answer.status_code == 503
            assert "retry-after" in answer.headers
            until(lambda: fatal)
            assert isinstance(fatal[0], EngineLostError)
            assert client.get("/readyz").status_code == 503
            assert client.post("/classify", content=picture()).status_code == 503


LOST = """
import socket, sys, threading, time
from pathlib import Path
import httpx, torch
from service import app
from service.commands.serve import serve
from service.settings import Settings
from tests.service.conftest import picture
from tests.service.serving.test_watchdog import Device, make

class Hanging(Device):
    def close(self):
        time.sleep(3600)

device = Hanging() if sys.argv[3] == "hangs" else Device()
app.choose_engine = lambda _, bundle: make(bundle, device)
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]

def lose():
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.05)
        device.fails["replay"] = [torch.AcceleratorError("CUDA error: device lost")]
        assert client.post("/classify", content=picture()).status_code == 503

threading.Thread(target=lose, daemon=True).start()
serve(
    Settings(
        bundle=sys.argv[1], cache_dir=sys.argv[2], port=port, max_batch=2, engine="torch",
        device="cpu", engine_threads=1, decode_threads=1,
    )
)
"""


@pytest.mark.parametrize("device", ["answers", "hangs"])
def test_the_process_ends_with_its_own_code_even_if_the_device_hangs(tiny_bundle, tmp_path, device):
    done = subprocess.run(
        [sys.executable, "-c", LOST, str(tiny_bundle), str(tmp_path), device],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == EXIT_ENGINE_LOST, done.stderr


def test_a_worker_whose_device_is_lost_ends_for_the_supervisor_to_start_another(
    make_settings, monkeypatch
):
    made, codes = [], []

    def noted(settings):
        made.append(make_service(settings))
        return made[-1]

    monkeypatch.setattr(app, "make_service", noted)
    monkeypatch.setattr(serve, "_EXIT_WITHIN_S", 0.0)
    monkeypatch.setattr(serve.os, "_exit", codes.append)
    serve.make_worker(make_settings())
    made[0].on_fatal(ValueError("of the bundle"))
    made[0].on_fatal(EngineLostError("gone"))
    until(lambda: codes == [EXIT_ENGINE_LOST])


def test_a_cold_point_answers_while_its_batches_are_captured(make_settings, tiny_bundle):
    """Eight graphs take seconds; a request waits for the graph of one image."""
    go, captured = threading.Event(), []

    class Slow(Device):
        def capture(self, work, warm_up):
            if work.func.__self__.input.shape[1] == 40:
                [size] = work.args
                if size > 1:
                    assert go.wait(60)
                captured.append(size)
            return super().capture(work, warm_up)

    engine = make(load(tiny_bundle), Slow())
    with serving(make_settings(), engine=engine) as running, running.client() as client:
        try:
            answer = client.post("/classify?resolution=40", content=picture())
            assert answer.json()["weights"] == "generated"
            assert captured == [1]
        finally:
            go.set()
        until(lambda: captured == [1, 2])


def test_batches_of_a_point_that_was_built_for_a_request_are_captured_behind_it(
    make_settings, tiny_bundle
):
    engine = make(load(tiny_bundle), Device())
    with serving(make_settings(), engine=engine) as running, running.client() as client:
        answer = client.post("/classify?resolution=40", content=picture())
        assert answer.status_code == 200
        cache = running.service.deployment.cache
        [point] = [p for p in cache.points() if p.resolution == 40]
        until(lambda: cache.peek(point).body.captured == (1, 2))


def test_the_first_build_of_a_process_says_nothing_about_the_next(make_settings, tiny_bundle):
    """It waits for libraries to load; cold points would look seconds away for a long time."""
    engine = make(load(tiny_bundle), Device())
    build, delays = engine.build, [4.0]

    def slow_at_first(point):
        time.sleep(delays.pop() if delays else 0)
        return build(point)

    engine.build = slow_at_first
    with serving(make_settings(), engine=engine) as running:
        assert not delays
        assert running.service.deployment.model.build_ms("float") < 2000


def test_a_full_device_is_a_503_and_serves_on(make_settings, tiny_bundle):
    device = Device()
    with (
        serving(make_settings(), engine=make(load(tiny_bundle), device)) as running,
        running.client() as client,
    ):
        full = torch.OutOfMemoryError("CUDA out of memory")
        device.fails["replay"] = [full, full]
        assert client.post("/classify", content=picture()).status_code == 503
        device.fails.clear()
        assert client.post("/classify", content=picture()).status_code == 200
        assert client.get("/readyz").status_code == 200


def test_a_batch_that_hangs_is_noticed_and_ends_the_process(
    make_settings, tiny_bundle, monkeypatch
):
    """A hung kernel never raises: `mark` is what waits for it."""
    hangs, go = threading.Event(), threading.Event()

    class Hanging(Device):
        def mark(self):
            return (lambda: go.wait(60)) if hangs.is_set() else super().mark()

    with (
        serving(make_settings(), engine=make(load(tiny_bundle), Hanging())) as running,
        running.client() as client,
        ThreadPoolExecutor(1) as caller,
    ):
        fatal = []
        running.service.on_fatal = fatal.append
        assert client.post("/classify", content=picture()).status_code == 200
        monkeypatch.setattr(watchdog, "HANGS_S", 0.2)
        hangs.set()
        hung = caller.submit(client.post, "/classify", content=picture(seed=1))
        until(lambda: fatal)
        assert "hangs" in str(fatal[0])
        with running.client() as other:
            assert other.get("/readyz").status_code == 503
            assert other.post("/classify", content=picture()).status_code == 503
        go.set()
        hung.result()


def test_a_process_that_was_stopped_is_not_taken_for_a_device_that_hangs(monkeypatch):
    """A paused container, for example: the batch did not run meanwhile either."""
    monkeypatch.setattr(watchdog, "HANGS_S", 1.0)
    monkeypatch.setattr(watchdog, "_STOPPED_S", 0.5)
    monkeypatch.setattr(watchdog, "_ENGINE_CHECK_S", 0.05)

    async def story():
        batch_began, given_up = time.monotonic(), []
        engine_thread = SimpleNamespace(longest_s=lambda: time.monotonic() - batch_began)
        tasks = Tasks()
        Watchdog(lambda: None, engine_thread).start(tasks, given_up.append)
        await asyncio.sleep(0.1)
        time.sleep(1.5)  # noqa: ASYNC251 (everything stands still)
        await asyncio.sleep(0.3)
        assert not given_up
        await asyncio.sleep(1.2)
        assert "hangs" in str(given_up[0])
        await tasks.end()

    asyncio.run(story())


@pytest.mark.parametrize("is_in_a_cycle", [False, True])
def test_the_first_deployment_is_gone_after_a_reload(
    make_settings, own_bundle, monkeypatch, is_in_a_cycle
):
    """With its engine and its meta network: on a GPU they are most of the memory.

    What is loaded at start is frozen; cycles in it, a library's for example, are looked for again,
    and once more if a thread still held the engine.
    """
    made, held, looks = [], [], []

    def choose(_, bundle):
        engine = make(bundle, Device())
        if is_in_a_cycle and not made:
            engine.itself = engine
            held.append(engine)
        made.append((weakref.ref(engine), weakref.ref(bundle.network)))
        return engine

    def collect():
        gc.collect()
        looks.append(True)
        if len(looks) == 3:
            held.clear()

    collector = SimpleNamespace(collect=collect, freeze=gc.freeze, unfreeze=gc.unfreeze)
    monkeypatch.setattr(swapping, "gc", collector)
    monkeypatch.setattr(app, "choose_engine", choose)
    with serving(make_settings(bundle=own_bundle)) as running, running.client() as client:
        new_version(own_bundle, "2")
        assert client.post("/admin/reload").status_code == 200
        assert client.post("/classify", content=picture()).status_code == 200

        def gone():
            gc.collect()
            return all(reference() is None for reference in made[0])

        until(gone)
        assert made[1][0]() is not None


def test_after_a_reload_networks_may_take_the_memory_of_those_before(
    make_settings, own_bundle, monkeypatch
):
    devices = []

    def room():
        return 100_000_000 if sum(not device.closed for device in devices) > 1 else 700_000_000

    def choose(_, bundle):
        devices.append(Device())
        engine = make(bundle, devices[-1])
        engine.room_bytes = room
        return engine

    monkeypatch.setattr(app, "choose_engine", choose)
    with serving(make_settings(bundle=own_bundle)) as running, running.client() as client:
        new_version(own_bundle, "2")
        assert client.post("/admin/reload").status_code == 200
        until(lambda: running.service.deployment.cache.capacity_bytes >= 700_000_000)
        assert [device.closed for device in devices] == [True, False]


def test_networks_take_no_more_than_the_device_has_room_for(make_settings, tiny_bundle):
    engine = make(load(tiny_bundle), Device())
    engine.room_bytes = lambda: 123_000_000
    with serving(make_settings(), engine=engine) as running:
        cache = running.service.deployment.cache
        # Asked when the first networks were ready, and again when they serve.
        assert 123_000_000 < cache.capacity_bytes <= 123_000_000 + cache.bytes
        # It takes two batches at a time: a thread for each.
        assert running.service.deployment.executor._in_flight == 2
        assert len(running.service.machinery.engine_thread._threads) == 2


@pytest.mark.parametrize(("cores", "decoders"), [(1, 1), (2, 1), (4, 2), (16, 14)])
def test_on_a_gpu_the_cores_decode(cores, decoders):
    assert app.plan_cores(cores, "gpu").decode == decoders
    assert app.plan_cores(cores, "gpu").engine == 1
