"""The engine on a GPU: weights, what modes share, what it holds and gives back."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from torch.torch_version import TorchVersion

from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from service.engines.cuda import engine as cuda_engine
from service.engines.torch_engine import TorchEngine
from service.errors import EngineUnavailableError, NotFiniteError
from tests.service.engines.cuda.graph_device import DeferringDevice, NotedDevice
from tests.service.engines.cuda.test_graphs import MOST, POINT, finished, make_engine, noted
from tests.service.engines.openvino.test_engine import (
    images,
    make_bundle,
    reference,
    relative_error,
)


@pytest.mark.parametrize("architecture", ["resnet18", "timm:resnetblur18"])
def test_half_precision_is_close(architecture):
    """The second has buffers that are in no state dict; they are in half precision too."""
    bundle = make_bundle(architecture)
    network = finished(make_engine(NotedDevice(torch.float16), make_bundle(architecture)), POINT)
    batch = images(3, 64)
    error = relative_error(network.run(batch), reference(bundle, POINT, batch))
    assert 1e-6 < error < 2e-2


def test_a_point_that_computes_no_numbers_is_not_built(monkeypatch):
    monkeypatch.setattr(cuda_engine, "is_finite", lambda _: False)
    with pytest.raises(NotFiniteError, match="not a number"):
        make_engine(NotedDevice(torch.float16)).build(POINT)


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


def test_networks_may_take_a_share_of_what_is_free_and_nothing_of_a_device_that_is_lost():
    device = NotedDevice()
    engine = make_engine(device)
    device.free = 5_000_000_000
    assert engine.room_bytes() == 3_000_000_000
    engine.told(torch.AcceleratorError("CUDA error: gone"))
    assert engine.room_bytes() == 0


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


@pytest.mark.parametrize(("version", "refused"), [("2.9.1", True), ("2.12.0", False)])
def test_an_old_torch_is_refused(monkeypatch, version, refused):
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    monkeypatch.setattr(cuda_engine, "resolve_device", torch.device)
    monkeypatch.setattr(cuda_engine, "CudaDevice", lambda _: NotedDevice())
    if refused:
        with pytest.raises(EngineUnavailableError, match=r"2\.12 or later, and this is 2\.9\.1"):
            cuda_engine._open("cuda")
    else:
        assert isinstance(cuda_engine._open("cuda"), NotedDevice)


def test_images_that_lie_anywhere_are_copied_into_the_slot_one_by_one():
    """Mirrored or not: they need not be stacked before."""
    network = finished(make_engine(NotedDevice()))
    batch = images(4, 64)
    scattered = [batch[0], batch[1].transpose(1, 0, 2), batch[2, :, ::-1], batch[3]]
    np.testing.assert_allclose(network.run(scattered), network.run(np.stack(scattered)), rtol=1e-5)
    np.testing.assert_array_equal(network.run(list(batch)), network.run(batch))
