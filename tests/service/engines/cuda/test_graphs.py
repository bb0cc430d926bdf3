"""The CUDA path without CUDA: what is captured when, padding, slots, ownership, falling back."""

from __future__ import annotations

import gc
import logging
import sys
import threading

import numpy as np
import pytest
import torch

from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from service.app import choose_engine, make_service, wants_gpu
from service.engines.base import batch_sizes, traits
from service.engines.cuda.engine import CudaEngine
from service.engines.cuda.graphs import GraphedNetwork
from service.engines.torch_engine import TorchEngine, resolve_device
from service.errors import EngineUnavailableError
from service.settings import Settings
from tests.service.engines.cuda.graph_device import DeferringDevice, NotedDevice
from tests.service.engines.openvino.test_engine import (
    images,
    make_bundle,
    reference,
    relative_error,
)

MOST = 8
POINT = OperatingPoint(64, Mode.PROXY)


def make_engine(device: NotedDevice, bundle=None) -> CudaEngine:
    return CudaEngine(
        bundle or make_bundle("resnet18"), threads=1, max_batch=MOST, device="cuda", graphs=device
    )


def finished(engine: CudaEngine, point: OperatingPoint = POINT) -> GraphedNetwork:
    network = engine.build(point)
    network.finish()
    return network


def noted(device: NotedDevice, what: str) -> list[str]:
    return [note for note in device.notes if note.startswith(what)]


def test_batch_sizes():
    assert batch_sizes(1) == (1,)
    assert batch_sizes(8) == (1, 2, 4, 8)
    assert batch_sizes(12) == (1, 2, 4, 8, 12)
    assert batch_sizes(64) == (1, 2, 4, 8, 16, 24, 32, 48, 64)
    assert batch_sizes(128) == (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)


@pytest.mark.parametrize("architecture", ["resnet18", "mobilenet_v2"])
def test_every_batch_gets_what_the_reference_computes(architecture):
    bundle = make_bundle(architecture)
    for point in (POINT, OperatingPoint(57, Mode.DATA_FREE)):
        network = finished(make_engine(NotedDevice(), make_bundle(architecture)), point)
        for n in (1, 3, 8, 2, 5):
            batch = images(n, point.resolution)
            found = network.run(batch)
            assert found.shape == (n, 7)
            assert found.dtype == np.float32
            assert relative_error(found, reference(bundle, point, batch)) < 1e-4


@pytest.mark.parametrize("architecture", ["resnet18", "timm:resnetblur18"])
def test_half_precision_is_close(architecture):
    """The second has buffers that are in no state dict; they are in half precision too."""
    bundle = make_bundle(architecture)
    network = finished(make_engine(NotedDevice(torch.float16), make_bundle(architecture)), POINT)
    batch = images(3, 64)
    error = relative_error(network.run(batch), reference(bundle, POINT, batch))
    assert 1e-6 < error < 2e-2


def test_all_is_captured_when_the_network_is_built_and_nothing_later():
    device = NotedDevice()
    network = finished(make_engine(device), POINT)
    assert network.body.captured == (1, 2, 4, 8)
    assert noted(device, "capture") == [f"capture {number}" for number in range(4)]
    network.run(images(1, 64))  # its weights are put in place
    device.notes.clear()
    # numbers in the order of capture: one image, then the largest first
    for n, number in ((1, 0), (2, 3), (3, 2), (4, 2), (5, 1), (8, 1)):
        network.run(images(n, 64))
        # the smallest graph that holds the batch, then the copy out, waited for; no allocation
        assert device.notes == ["upload", "copy", f"replay {number}", "copy", "wait"]
        device.notes.clear()


def test_the_largest_batch_is_captured_first():
    """After one image, for the first answer; the smaller ones then fit into what it took."""
    sizes = []

    class Sized(NotedDevice):
        def capture(self, work, warm_up):
            sizes.append(work.args[0])
            return super().capture(work, warm_up)

    finished(make_engine(Sized()), POINT)
    assert sizes == [1, 8, 4, 2]


def test_a_cold_point_answers_once_one_image_is_captured_and_batches_are_split_until_then():
    device, bundle = NotedDevice(), make_bundle("resnet18")
    engine = make_engine(device)
    network = engine.build(POINT)
    assert network.body.captured == (1,)
    batch = images(3, 64)
    assert relative_error(network.run(batch), reference(bundle, POINT, batch)) < 1e-4
    assert engine.facts.replays == {1: 3}
    with torch.inference_mode():
        network.body.output.fill_(7.0)
    network.finish()
    assert network.body.captured == (1, 2, 4, 8)
    assert (network.body.output == 7.0).all()  # a batch that runs meanwhile is not disturbed
    network.finish()
    assert engine.facts.captures == 4


def test_rows_that_pad_a_batch_touch_no_other():
    engine = make_engine(NotedDevice())
    network = finished(engine)
    batch = images(3, 64)
    clean = network.run(batch)
    network.run(np.full((8, 64, 64, 3), 255, np.uint8))
    np.testing.assert_array_equal(network.run(batch), clean)
    assert engine.facts.padding == 2
    assert engine.facts.images == 14
    assert engine.facts.replays == {4: 2, 8: 1}


def test_nothing_is_read_before_it_is_there():
    """On a device that does nothing before it is waited for, answers are the same."""
    batches = [images(n, 64) for n in (3, 8, 1)]
    plain = finished(make_engine(NotedDevice()), POINT)
    deferred = finished(make_engine(DeferringDevice()), POINT)
    for batch in batches:
        np.testing.assert_array_equal(deferred.run(batch), plain.run(batch))


def test_two_batches_are_in_flight():
    """The second is asked for while the first is waited for, and a third has to wait."""
    entered, go = threading.Semaphore(0), threading.Event()

    class Slow(DeferringDevice):
        def mark(self):
            wait = super().mark()

            def slowly():
                entered.release()
                assert go.wait(30)
                with self.lock:
                    wait()

            return slowly

    device = Slow()
    device.lock = threading.Lock()
    engine = make_engine(device)
    assert traits(engine).in_flight == 2
    network = finished(engine)
    batches = [images(n, 64) for n in (1, 2, 3)]
    found = {}

    def run(place):
        found[place] = network.run(batches[place])

    threads = [threading.Thread(target=run, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    assert entered.acquire(timeout=30)
    assert entered.acquire(timeout=30)
    assert len(noted(device, "upload")) == 2
    assert not entered.acquire(timeout=0.2)
    go.set()
    for thread in threads:
        thread.join(30)
    plain = finished(make_engine(NotedDevice()), POINT)
    for place, batch in enumerate(batches):
        np.testing.assert_array_equal(found[place], plain.run(batch))


def test_buffers_are_pinned_while_building_and_shared_by_all_networks():
    device = NotedDevice()
    engine = make_engine(device)
    engine.build(OperatingPoint(64))
    assert noted(device, "pin") == 2 * [f"pin {MOST * 64 * 64 * 3}", f"pin {MOST * 7}"]
    device.notes.clear()
    small = engine.build(OperatingPoint(48))
    assert not noted(device, "pin")
    large = engine.build(OperatingPoint(96))
    assert noted(device, "pin") == 2 * [f"pin {MOST * 96 * 96 * 3}", f"pin {MOST * 7}"]
    batch = images(2, 48)
    before = small.run(batch)
    large.run(images(8, 96))
    np.testing.assert_array_equal(small.run(batch), before)


def test_a_network_owns_its_weights():
    bundle = make_bundle("resnet18")
    network = finished(make_engine(NotedDevice(), bundle), POINT)
    batch = images(2, 64)
    before = network.run(batch)
    with torch.no_grad():
        for tensor in (*bundle.network.parameters(), *bundle.network.buffers()):
            tensor.zero_()
    np.testing.assert_array_equal(network.run(batch), before)


def test_modes_of_one_resolution_share_its_graphs_and_do_not_mix():
    device = DeferringDevice()
    engine, bundle = make_engine(device), make_bundle("resnet18")
    points = [OperatingPoint(57, mode) for mode in Mode]
    networks = [finished(engine, point) for point in points]
    assert len(noted(device, "capture")) == 4
    assert len({id(network.body) for network in networks}) == 1
    batch = images(2, 57)
    for _ in range(2):
        for point, network in zip(points, networks, strict=True):
            expected = reference(bundle, point, batch)
            assert relative_error(network.run(batch), expected) < 1e-4
            device.notes.clear()
            network.run(batch)
            assert not noted(device, "weights")  # they are in place
    assert engine.facts.switches == 6


def test_the_graphs_of_a_resolution_go_with_its_last_network():
    device = NotedDevice()
    engine = make_engine(device)
    first = finished(engine, OperatingPoint(64, Mode.PROXY))
    second = engine.build(OperatingPoint(64, Mode.DATA_FREE))
    del first
    assert engine.build(OperatingPoint(64, Mode.PROXY)).body is second.body
    del second
    gc.collect()  # a replay of this device refers to the body; CUDA's does not
    finished(engine, OperatingPoint(64, Mode.PROXY))
    assert len(noted(device, "capture")) == 8


def test_what_the_cache_counts_is_weights_twice_input_and_output():
    plain = TorchEngine(make_bundle("resnet18"), threads=1, max_batch=MOST, device="cpu")
    weights = plain.build(POINT).memory_bytes
    network = finished(make_engine(NotedDevice()), POINT)
    assert network.memory_bytes == 2 * weights + 4 * MOST * (64 * 64 * 3 + 7)
    half = finished(make_engine(NotedDevice(torch.float16)), POINT)
    assert half.memory_bytes == weights + MOST * (2 * 64 * 64 * 3 + 4 * 7)


def test_what_cannot_be_captured_runs_eagerly_and_says_why(caplog):
    device = NotedDevice(most_captures=0)
    bundle = make_bundle("resnet18")
    engine = make_engine(device, make_bundle("resnet18"))
    assert engine.describe()["graphs"] == "for batches of 1, 2, 4, 8"
    with caplog.at_level(logging.WARNING):
        network = finished(engine)
    assert network.body.captured == ()
    reason = engine.describe()["graphs"]
    assert "operation not permitted" in reason
    assert "\n" not in reason
    assert reason in caplog.text
    for n in (1, 2, 3, 8):
        batch = images(n, 64)
        assert relative_error(network.run(batch), reference(bundle, POINT, batch)) < 1e-4
    assert not noted(device, "replay")


def test_an_error_of_ours_is_not_taken_for_one_of_capture():
    device = NotedDevice(most_captures=0)
    device.error = TypeError("a bug")
    with pytest.raises(TypeError, match="a bug"):
        finished(make_engine(device), POINT)


def test_the_engine_tells_about_itself():
    engine = make_engine(NotedDevice(torch.float16))
    facts = engine.describe()
    assert facts["gpu"] == "none"
    assert facts["dtype"] == "float16"
    finished(engine).run(images(3, 64))
    numbers = engine.metrics()
    assert numbers["captures"] == 4
    assert numbers["replays_4"] == 1
    assert numbers["padded_rows"] == 1
    assert numbers["memory_pool_bytes"] == 5_000_000
    assert numbers["pinned_bytes"] == 2 * MOST * (64 * 64 * 3 + 4 * 7)
    assert numbers["lost"] == 0


def test_a_closed_engine_has_let_go_of_everything():
    device = NotedDevice()
    engine = make_engine(device)
    network = engine.build(POINT)
    engine.close()
    assert device.closed
    assert engine.metrics()["pinned_bytes"] == 0
    with pytest.raises(EngineUnavailableError, match="closed"):
        engine.build(POINT)
    network.finish()  # as it may be asked for behind requests: too late
    assert engine.facts.captures == 1


def test_the_host_computes_with_one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        make_engine(NotedDevice())
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("device", "built_with", "there", "count", "words"),
    [
        ("cuda", None, False, 0, "without CUDA"),
        ("cuda", "13.0", False, 0, "too old for CUDA 13.0"),
        ("cuda:7", "13.0", True, 2, "there are 2 CUDA devices"),
    ],
)
def test_a_device_that_cannot_be_used_is_refused_with_its_reason(
    monkeypatch, device, built_with, there, count, words
):
    monkeypatch.setattr(torch.version, "cuda", built_with)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with pytest.raises(EngineUnavailableError, match=words):
        CudaEngine(make_bundle("resnet18"), threads=1, max_batch=1, device=device)
    if not there:
        assert resolve_device("auto").type == "cpu"


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_gpu_that_nobody_named_and_that_cannot_be_used_leaves_the_work_to_the_cpu(
    monkeypatch, caplog, device
):
    def broken(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("service.app.wants_gpu", lambda settings: settings.device != "cpu")
    monkeypatch.setattr("service.engines.cuda.engine.CudaEngine", broken)
    settings = Settings(device=device, engine="torch")
    if device == "auto":
        assert choose_engine(settings, make_bundle("resnet18")).device == "cpu"
        assert "CUDA out of memory" in caplog.text
    else:
        with pytest.raises(torch.OutOfMemoryError):
            choose_engine(settings, make_bundle("resnet18"))


@pytest.mark.parametrize("reason", ["torch is not installed", "too old for CUDA 13.0"])
def test_a_gpu_that_torch_cannot_use_leaves_the_work_to_the_cpu_and_says_why(
    monkeypatch, tmp_path, caplog, reason
):
    """A default installation has no torch, on a host with a graphics card too."""
    monkeypatch.setattr("service.app._GPU_DEVICES", (tmp_path,))
    if "torch" in reason:
        monkeypatch.setitem(sys.modules, "service.engines.torch_engine", None)
        reason = "service.engines.torch_engine"
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    service = make_service(Settings(device="auto"))
    assert service.machinery.settings.device == "cpu"
    assert [reason in message for message in caplog.messages] == [True]


@pytest.mark.parametrize(("asked", "most"), [({}, 64), ({"max_batch": 12}, 12)])
def test_on_a_gpu_batches_are_large_and_all_cores_but_two_decode(monkeypatch, asked, most):
    monkeypatch.setattr("service.app.available_cores", lambda: 16)
    machinery = make_service(Settings(device="cuda", **asked)).machinery
    assert machinery.settings.max_batch == most
    assert len(machinery.decoders._threads) == machinery.host.decode_threads == 14
    assert make_service(Settings(device="cpu")).machinery.settings.max_batch == 8


@pytest.mark.parametrize(
    ("device", "engine", "there_is_one", "found"),
    [
        ("auto", "auto", True, True),
        ("auto", "torch", True, True),
        ("auto", "openvino", True, False),
        ("auto", "auto", False, False),
        ("cpu", "auto", True, False),
        ("cuda:1", "auto", False, True),
    ],
)
def test_a_gpu_is_used_where_there_is_one(
    monkeypatch, tmp_path, device, engine, there_is_one, found
):
    monkeypatch.setattr("service.app._GPU_DEVICES", (tmp_path,) if there_is_one else ())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there_is_one)
    assert wants_gpu(Settings(device=device, engine=engine)) is found
