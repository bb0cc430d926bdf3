"""A device that is lost, and one that is full: while building, capturing, running."""

from __future__ import annotations

import pytest
import torch

from san_core.frontier import OperatingPoint
from service.engines.base import lost
from service.engines.cuda.device_errors import is_full, is_lost, translated
from service.errors import EngineFullError, EngineLostError, Problem
from tests.service.engines.cuda.graph_device import FailingDevice
from tests.service.engines.cuda.test_graphs import POINT, make_engine
from tests.service.engines.openvino.test_engine import (
    images,
    make_bundle,
    reference,
    relative_error,
)

ILLEGAL = torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nmore")
FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


@pytest.mark.parametrize(
    "error",
    [
        ILLEGAL,
        RuntimeError("CUDA error: unspecified launch failure"),
        RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx"),
    ],
)
def test_lost(error):
    assert is_lost(error)
    problem = Problem(translated(error), "id")
    assert problem.status == 503
    assert "Retry-After" in problem.headers


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
    ],
)
def test_full(error):
    assert is_full(error)
    assert not is_lost(error)
    assert Problem(translated(error), "id").status == 503


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("expected scalar type Half but found Float"),
        torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing"),
        ValueError("CUDA error"),
    ],
)
def test_neither(error):
    assert not is_lost(error)
    assert not is_full(error)
    assert translated(error) is error


def test_a_device_that_is_lost_in_a_run_is_lost_for_good():
    device = FailingDevice()
    engine = make_engine(device)
    network = engine.build(POINT)
    device.fails["replay"] = [ILLEGAL, RuntimeError("CUDA error: whatever follows")]
    with pytest.raises(EngineLostError, match="illegal memory access"):
        network.run(images(1, 64))
    assert "illegal" in str(lost(engine))
    with pytest.raises(EngineLostError, match="illegal"):
        engine.build(OperatingPoint(48))
    assert engine.metrics()["lost"] == 1


@pytest.mark.parametrize("place", ["building", "capture"])
def test_a_device_that_is_lost_in_a_build(place):
    device = FailingDevice()
    engine = make_engine(device)
    device.fails[place] = [ILLEGAL]
    with pytest.raises(EngineLostError):
        engine.build(POINT)
    assert lost(engine)


def test_no_memory_for_a_build_is_a_503_and_the_next_may_succeed():
    device = FailingDevice()
    engine = make_engine(device)
    device.fails["building"] = [FULL, RuntimeError("never")]
    with pytest.raises(EngineFullError):
        engine.build(POINT)
    assert "release" in device.notes
    assert lost(engine) is None
    device.fails.clear()
    engine.build(POINT).run(images(1, 64))


def test_batches_too_large_to_be_captured_are_split_over_what_was():
    bundle = make_bundle("resnet18")

    class Small(FailingDevice):
        def capture(self, work, warm_up):
            if work.args[0] > 2:
                raise FULL
            return super().capture(work, warm_up)

    device = Small()
    engine = make_engine(device)
    network = engine.build(POINT)
    network.finish()
    assert network.body.captured == (1, 2)
    assert "split" in engine.describe()["graphs"]
    device.notes.clear()
    batch = images(5, 64)
    assert relative_error(network.run(batch), reference(bundle, POINT, batch)) < 1e-4
    assert engine.facts.replays == {2: 2, 1: 1}  # never eagerly: that would need the memory again


def test_a_device_without_room_for_one_image_is_full():
    device = FailingDevice()
    engine = make_engine(device)
    device.fails["capture"] = [FULL]
    with pytest.raises(EngineFullError, match="not even one image"):
        engine.build(POINT)


def test_no_memory_in_a_run_is_a_503():
    device = FailingDevice()
    engine = make_engine(device)
    network = engine.build(POINT)
    device.fails["replay"] = [FULL, RuntimeError("never")]
    with pytest.raises(EngineFullError):
        network.run(images(1, 64))
    device.fails.clear()
    network.run(images(1, 64))
