"""The CUDA path without CUDA: what is captured when, padding, buffers, ownership, falling back."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from service.app import wants_gpu
from service.engines.base import batch_sizes
from service.engines.torch_engine import TorchEngine, resolve_device
from service.errors import EngineUnavailableError
from service.settings import Settings
from tests.service.engines.graph_device import NotedDevice
from tests.service.engines.test_openvino_engine import (
    images,
    make_bundle,
    reference,
    relative_error,
)

MOST = 8
POINT = OperatingPoint(64, Mode.PROXY)


def make_engine(device: NotedDevice, bundle=None) -> TorchEngine:
    return TorchEngine(
        bundle or make_bundle("resnet18"), threads=1, max_batch=MOST, device="cpu", graphs=device
    )


def test_batch_sizes():
    assert batch_sizes(1) == (1,)
    assert batch_sizes(8) == (1, 2, 4, 8)
    assert batch_sizes(12) == (1, 2, 4, 8, 12)


@pytest.mark.parametrize("architecture", ["resnet18", "mobilenet_v2"])
def test_every_batch_gets_what_the_reference_computes(architecture):
    bundle = make_bundle(architecture)
    for point in (POINT, OperatingPoint(57, Mode.DATA_FREE)):
        network = make_engine(NotedDevice(), make_bundle(architecture)).build(point)
        for n in (1, 3, 8, 2, 5):
            batch = images(n, point.resolution)
            found = network.run(batch)
            assert found.shape == (n, 7)
            assert found.dtype == np.float32
            assert relative_error(found, reference(bundle, point, batch)) < 1e-4


def test_half_precision_is_close():
    bundle = make_bundle("resnet18")
    network = make_engine(NotedDevice(torch.float16), make_bundle("resnet18")).build(POINT)
    batch = images(3, 64)
    error = relative_error(network.run(batch), reference(bundle, POINT, batch))
    assert 1e-6 < error < 2e-2


def test_all_is_captured_when_the_network_is_built_and_nothing_later():
    device = NotedDevice()
    network = make_engine(device).build(POINT)
    assert network.captured == (1, 2, 4, 8)
    assert [note for note in device.notes if note.startswith("capture")] == [
        f"capture {number}" for number in range(4)
    ]
    device.notes.clear()
    for n, number in ((1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3)):
        network.run(images(n, 64))
        # the smallest graph that holds the batch, then the copy out, awaited; no allocation
        assert device.notes == [f"replay {number}", "finish"]
        device.notes.clear()


def test_a_result_is_the_callers_to_keep():
    network = make_engine(NotedDevice()).build(POINT)
    first = network.run(images(2, 64))
    kept = first.copy()
    network.run(images(8, 64))
    np.testing.assert_array_equal(first, kept)


def test_rows_that_pad_a_batch_touch_no_other():
    network = make_engine(NotedDevice()).build(POINT)
    batch = images(3, 64)
    clean = network.run(batch)
    assert np.isnan(network.run(np.full((8, 64, 64, 3), np.nan, np.float32))).all()
    np.testing.assert_array_equal(network.run(batch), clean)


def test_buffers_are_pinned_while_building_and_shared_by_all_networks():
    device = NotedDevice()
    engine = make_engine(device)
    engine.build(OperatingPoint(64))
    assert [note for note in device.notes if note.startswith("pin")] == [
        f"pin {MOST * 64 * 64 * 3}",
        f"pin {MOST * 7}",
    ]
    device.notes.clear()
    small = engine.build(OperatingPoint(48))
    assert not [note for note in device.notes if note.startswith("pin")]
    large = engine.build(OperatingPoint(96))
    assert [note for note in device.notes if note.startswith("pin")] == [
        f"pin {MOST * 96 * 96 * 3}"
    ]
    batch = images(2, 48)
    before = small.run(batch)
    large.run(images(8, 96))
    np.testing.assert_array_equal(small.run(batch), before)


def test_a_network_owns_its_weights():
    bundle = make_bundle("resnet18")
    network = make_engine(NotedDevice(), bundle).build(POINT)
    batch = images(2, 64)
    before = network.run(batch)
    with torch.no_grad():
        for tensor in (*bundle.network.parameters(), *bundle.network.buffers()):
            tensor.zero_()
    np.testing.assert_array_equal(network.run(batch), before)


def test_two_networks_of_one_engine_do_not_mix():
    engine = make_engine(NotedDevice())
    first, batch = engine.build(OperatingPoint(64)), images(2, 64)
    before = first.run(batch)
    second = engine.build(OperatingPoint(64, Mode.DATA_FREE))
    other = engine.build(OperatingPoint(48)).run(images(2, 48))
    assert np.isfinite(other).all()
    np.testing.assert_array_equal(first.run(batch), before)
    assert second.run(batch).shape == before.shape


def test_what_the_cache_counts_is_weights_input_and_output():
    plain = TorchEngine(make_bundle("resnet18"), threads=1, max_batch=MOST, device="cpu")
    weights = plain.build(POINT).memory_bytes
    network = make_engine(NotedDevice()).build(POINT)
    assert network.memory_bytes == weights + 4 * MOST * (64 * 64 * 3 + 7)
    half = make_engine(NotedDevice(torch.float16)).build(POINT)
    assert half.memory_bytes == weights // 2 + MOST * (2 * 64 * 64 * 3 + 4 * 7)


@pytest.mark.parametrize("most", [0, 2])
def test_what_cannot_be_captured_runs_eagerly_and_says_why(most, caplog):
    device = NotedDevice(most_captures=most)
    bundle = make_bundle("resnet18")
    engine = make_engine(device, make_bundle("resnet18"))
    assert engine.describe()["graphs"] == "for batches of 1, 2, 4, 8"
    with caplog.at_level(logging.WARNING):
        network = engine.build(POINT)
    assert network.captured == (1, 2, 4, 8)[:most]
    reason = engine.describe()["graphs"]
    assert "operation not permitted" in reason
    assert "\n" not in reason
    assert reason in caplog.text
    device.notes.clear()
    for n in (1, 2, 3, 8):
        batch = images(n, 64)
        found = network.run(batch)
        assert relative_error(found, reference(bundle, POINT, batch)) < 1e-4
    replays = [note for note in device.notes if note.startswith("replay")]
    assert len(replays) == most


def test_an_error_of_ours_is_not_taken_for_one_of_capture():
    device = NotedDevice(most_captures=0)
    device.error = TypeError("a bug")
    with pytest.raises(TypeError, match="a bug"):
        make_engine(device).build(POINT)


def test_the_engine_tells_about_its_graphs():
    engine = make_engine(NotedDevice(torch.float16))
    before = engine.describe()
    assert before["gpu"] == "none"
    assert before["dtype"] == "float16"
    assert before["graph_memory"].endswith("0.0 MB pinned")
    engine.build(POINT)
    assert engine.describe()["graph_memory"] == "5.0 MB shared, 0.2 MB pinned"


def test_without_a_gpu_cuda_is_refused_with_a_hint(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto").type == "cpu"
    bundle = make_bundle("resnet18")
    with pytest.raises(EngineUnavailableError, match="--device cpu"):
        TorchEngine(bundle, threads=1, max_batch=1, device="cuda")


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
def test_a_gpu_is_used_where_there_is_one(monkeypatch, device, engine, there_is_one, found):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there_is_one)
    assert wants_gpu(Settings(device=device, engine=engine)) is found
