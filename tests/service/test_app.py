"""Which engine is chosen, and how the machine is shared out."""

from __future__ import annotations

import sys

import pytest
import torch

from service.app import choose_engine, make_service, wants_gpu
from service.settings import Settings
from tests.service.engines.openvino.test_engine import (
    make_bundle,
)


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
