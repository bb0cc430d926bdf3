"""Which device torch may use; what it computes is in `test_contract`."""

from __future__ import annotations

import pytest
import torch

from service.engines.cuda.engine import CudaEngine
from service.engines.torch_engine import resolve_device
from service.errors import EngineUnavailableError
from tests.service.engines.openvino.test_engine import (
    make_bundle,
)


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
