"""Which engine is chosen, and what happens where a GPU cannot be used."""

from __future__ import annotations

import sys

import pytest
import torch

from service.engines.choice import choose_engine, wants_gpu
from service.errors import EngineUnavailableError
from service.settings import Settings
from tests.service.engines.openvino.test_engine import make_bundle


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_gpu_that_nobody_named_and_that_cannot_be_used_leaves_the_work_to_the_cpu(
    monkeypatch, caplog, device
):
    def broken(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(
        "service.engines.choice.wants_gpu", lambda settings: settings.device != "cpu"
    )
    monkeypatch.setattr("service.engines.cuda.engine.CudaEngine", broken)
    settings = Settings(device=device, engine="torch")
    if device == "auto":
        assert choose_engine(settings, make_bundle("resnet18")).device == "cpu"
        assert "CUDA out of memory" in caplog.text
    else:
        with pytest.raises(torch.OutOfMemoryError):
            choose_engine(settings, make_bundle("resnet18"))


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
    monkeypatch.setattr("service.engines.choice._GPU_DEVICES", (tmp_path,) if there_is_one else ())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there_is_one)
    assert wants_gpu(Settings(device=device, engine=engine)) is found


def test_a_machine_without_torch_is_told_how_to_get_it(monkeypatch):
    bundle = make_bundle("resnet18")
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "service.engines.torch_engine", raising=False)
    with pytest.raises(EngineUnavailableError) as told:
        choose_engine(Settings(device="cpu", engine="torch"), bundle)
    assert str(told.value) == "The torch engine needs torch: pip install 'san-serve[torch]'."
