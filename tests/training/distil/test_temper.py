from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from san_core.network.architectures import build
from san_core.preprocessing import Preprocessing
from training.data.folder import index_unlabelled
from training.distil.temper import _smallest, temper
from training.lift.lift import lift


@pytest.mark.parametrize("at", [0.11, 0.28, 0.9, 1.4])
def test_golden_section_finds_the_valley(at: float) -> None:
    asked = []

    def cost(x: float) -> float:
        asked.append(x)
        return (x - at) ** 2

    assert _smallest(cost, 0.1, 1.5, 16) == pytest.approx(at, abs=5e-3)
    assert len(asked) == 16


def test_overconfidence_is_undone_at_every_resolution_but_the_native(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for index in range(8):
        pixels = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((128, 96)).save(tmp_path / f"{index}.png")
    torch.manual_seed(0)
    state = build("mobilenet_v2", 5).state_dict()
    state["classifier.1.weight"] *= 1000  # an untrained network is sure of nothing
    network = lift(
        "mobilenet_v2", {64: state}, native=64, resolutions=(96, 64), num_classes=5
    ).network
    channels = network.norms[-1].channels
    with torch.no_grad():
        network.batch_norm(96).weight[-channels:] *= 4.0
    native = {name: tensor.clone() for name, tensor in network.generate(64).items()}
    factors = temper(network, index_unlabelled(tmp_path), Preprocessing())
    assert factors.keys() == {96}
    assert 0.1 < factors[96] < 0.7
    kept = network.batch_norm(96).weight[:-channels]
    assert torch.equal(kept, torch.ones_like(kept))
    for name, tensor in network.generate(64).items():
        assert torch.equal(tensor, native[name])
