"""How the machine is shared out, and on which device."""

from __future__ import annotations

import sys

import pytest
import torch

from service.app import make_service
from service.settings import Settings


@pytest.mark.parametrize("reason", ["torch is not installed", "too old for CUDA 13.0"])
def test_a_gpu_that_torch_cannot_use_leaves_the_work_to_the_cpu_and_says_why(
    monkeypatch, tmp_path, caplog, reason
):
    """A default installation has no torch, on a host with a graphics card too."""
    monkeypatch.setattr("service.engines.choice._GPU_DEVICES", (tmp_path,))
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
