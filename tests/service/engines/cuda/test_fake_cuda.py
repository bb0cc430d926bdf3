"""CUDA without CUDA: fake tensors through the engine, torch's own signatures, no call too early."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks import gpu
from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from san_core.network.architectures import FIRST_CLASS
from service.engines.cuda import engine as cuda_engine
from service.engines.cuda.engine import CudaEngine
from service.engines.cuda.graphs import DeviceMemory
from service.engines.cuda.self_test import TOLERANCE
from tests.service.engines.cuda.graph_device import NotedDevice
from tests.service.engines.openvino.test_engine import images, make_bundle

ODD = ("timm:resnetblur18", "densenet121", "shufflenet_v2_x0_5")


class WaitedForError(Exception):
    """All was asked for: what is read next are numbers, and a fake tensor has none."""


class FakeCuda:
    """A GPU whose tensors have a device, a type and a shape, and no numbers."""

    device = torch.device("cuda:0")
    dtype = torch.float16

    def __init__(self) -> None:
        self.copies: list[tuple[str, str]] = []
        """From where to where."""

    def describe(self) -> dict[str, str]:
        return {}

    def memory(self) -> DeviceMemory:
        return DeviceMemory(10**10, 10**10, 0, 0)

    @contextmanager
    def building(self) -> Iterator[None]:
        yield

    running = building

    def upload(self, target: torch.Tensor, source: torch.Tensor) -> None:
        self.copy([target], [source])

    def copy(self, targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)
            self.copies.append((source.device.type, target.device.type))

    def mark(self) -> Callable[[], None]:
        def wait() -> None:
            raise WaitedForError

        return wait

    def pinned(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(elements, dtype=dtype)

    def capture(
        self, work: Callable[[], None], warm_up: Callable[[], object]
    ) -> Callable[[], None]:
        warm_up()
        work()
        return work

    def release(self) -> None: ...

    def close(self) -> None: ...


def copied(tensor: torch.Tensor, _: object) -> torch.Tensor:
    """A deep copy without reading memory, which a fake tensor has none of."""
    clone = tensor.clone()
    return nn.Parameter(clone) if isinstance(tensor, nn.Parameter) else clone


# Generation remembers tensors by their address; a fake one has none, and says so.
@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor:UserWarning")
@pytest.mark.parametrize("architecture", [*FIRST_CLASS, *ODD])
def test_every_tensor_is_on_the_device_and_in_half_precision(architecture, monkeypatch):
    """But for batch norms that were not folded: their variances overflow half precision.

    The self-test reads numbers, which fake tensors do not have; what it is given is looked at here.
    """
    compared = []
    monkeypatch.setattr(cuda_engine, "is_finite", lambda _: True)
    monkeypatch.setattr(cuda_engine, "disagreement", lambda *of: compared.append(of) or 0.0)
    monkeypatch.setattr(torch.Tensor, "__deepcopy__", copied)
    bundle = make_bundle(architecture)
    device = FakeCuda()
    with FakeTensorMode(allow_non_fake_inputs=True):
        engine = CudaEngine(bundle, threads=1, max_batch=2, device="cuda", graphs=device)
        network = engine.build(OperatingPoint(64, Mode.PROXY))
        network.finish()
        with pytest.raises(WaitedForError):
            network.run(images(2, 64))
    [(half, exact)] = compared
    assert (half.dtype, exact.dtype) == (torch.float16, torch.float32)
    assert half.device == exact.device == FakeCuda.device
    # Pixels to the device, from there on all on it, until the logits come back.
    assert device.copies[0] == ("cpu", "cuda")
    assert set(device.copies[1:-1]) == {("cuda", "cuda")}
    assert device.copies[-1] == ("cuda", "cpu")
    assert network.body.input.dtype == torch.float16
    module = network.body._module
    norms = {n for n, m in module.named_modules() if isinstance(m, nn.BatchNorm2d)}
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        assert tensor.device == FakeCuda.device, name
        if tensor.is_floating_point():
            inside = name.rpartition(".")[0] in norms
            assert tensor.dtype == (torch.float32 if inside else torch.float16), name
    assert network.body.captured == (1, 2)


def test_statistics_that_overflow_half_precision_stay_in_float32():
    bundle = make_bundle("densenet121")
    with torch.no_grad():
        for norm in bundle.network.batch_norms.values():
            norm.running_var.fill_(7e4)  # over 65504, the largest half
    network = CudaEngine(
        bundle, threads=1, max_batch=1, device="cuda", graphs=NotedDevice(torch.float16)
    ).build(OperatingPoint(64))
    assert np.isfinite(network.run(images(1, 64))).all()
    assert network.body.input.dtype == torch.float16  # the others need not
    assert all(tensor.isfinite().all() for tensor in network.body._state.values())


def test_a_point_that_half_precision_is_too_coarse_for_runs_in_float32(monkeypatch):
    found = iter([2 * TOLERANCE, 0.5 * TOLERANCE])
    monkeypatch.setattr(cuda_engine, "disagreement", lambda *_: next(found))
    engine = CudaEngine(
        make_bundle("resnet18"),
        threads=1,
        max_batch=1,
        device="cuda",
        graphs=NotedDevice(torch.float16),
    )
    coarse, fine = engine.build(OperatingPoint(64)), engine.build(OperatingPoint(48))
    assert coarse.body.input.dtype == torch.float32
    assert fine.body.input.dtype == torch.float16
    assert "float32 at 64 px" in engine.describe()["dtype"]


def test_what_is_used_of_torch_cuda_is_there_as_it_is_used():
    graph = torch.cuda.CUDAGraph
    for name in ("capture_begin", "capture_end", "replay", "reset"):
        assert callable(getattr(graph, name))
    accepted = {
        torch.cuda.memory_snapshot: {"mempool_id", "include_traces"},
        torch.cuda.mem_get_info: {"device"},
        torch.cuda.memory_reserved: {"device"},
        torch.cuda.get_device_properties: {"device"},
        torch.cuda.stream: {"stream"},
        torch.cuda.Stream.__new__: {"device", "priority"},
        torch.cuda.Stream.wait_stream: {"stream"},
        torch.cuda.Event.__new__: {"blocking"},
        torch.cuda.Event.record: {"stream"},
        graph.capture_begin: {"pool", "capture_error_mode"},
        torch.cuda.graph_pool_handle: set(),
        torch.cuda.empty_cache: set(),
        torch.cuda.device_count: set(),
        torch.cuda.is_available: set(),
        torch.cuda.set_per_process_memory_fraction: {"fraction", "device"},
    }
    known = {function.__qualname__.partition(".")[0] for function in accepted} | {"CUDAGraph"}
    sources = [*Path(cuda_engine.__file__).parents[1].rglob("*.py"), Path(gpu.__file__)]
    used = {
        name for path in sources for name in re.findall(r"torch\.cuda\.(\w+)", path.read_text())
    }
    assert used <= known
    for function, wanted in accepted.items():
        assert wanted <= set(inspect.signature(function).parameters), function
    targets, sources = [torch.zeros(2), torch.zeros(3)], [torch.ones(2), torch.ones(3)]
    torch._foreach_copy_(targets, sources, non_blocking=True)
    assert torch.equal(targets[1], sources[1])
    assert issubclass(torch.AcceleratorError, RuntimeError)
    assert issubclass(torch.OutOfMemoryError, RuntimeError)


def test_nothing_touches_cuda_before_workers_are_started():
    """A fork of a process that initialised CUDA cannot use it; nor is there one."""
    code = (
        "import service.app, service.commands.serve, service.processes.supervisor\n"
        "import torch, threading, uvicorn.supervisors.multiprocess as workers\n"
        "assert workers.get_subprocess.__globals__['spawn'].get_start_method() == 'spawn'\n"
        "assert not torch.cuda.is_initialized()\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
