"""Generating from arrays gives what torch gives, for every meta learner and mode."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from san_core.bundle import Bundle, Manifest, read, save
from san_core.errors import BundleMismatchError
from san_core.main_network.blueprint import Blueprint, MainNetworks
from san_core.main_network.folding import FoldedArchitecture
from san_core.mode import Mode
from san_core.network.network_config import MetaLearnerKind
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork

Make = Callable[..., ScaleAdaptiveNetwork]


def stored(network: ScaleAdaptiveNetwork, path: Path, dtype: torch.dtype = torch.float32) -> Bundle:
    manifest = Manifest(
        name="tiny", network=network.config, classes=tuple(f"class {i}" for i in range(7))
    )
    save(path, network, manifest, dtype=dtype)
    return read(path)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"meta_learner": MetaLearnerKind.MLP_8},
        {"meta_learner": MetaLearnerKind.PRIVATE},
        {"shared_batch_norm": True},
        {"generate_stem": False},
        {"origin": 0.3, "native_from": 80},
        {"meta_learner": MetaLearnerKind.PIECEWISE, "knots": (80, 64, 48)},
        {"architecture": "densenet121"},  # has batch norms that no convolution comes before
        {"architecture": "timm:efficientnet_lite0"},
    ],
    ids=str,
)
def test_the_same_numbers_as_torch(make_network: Make, tmp_path: Path, options: dict) -> None:  # type: ignore[type-arg]
    network = make_network(**options)
    channels = sum(slot.channels for slot in network.norms)
    mean, var = torch.rand(2, channels)
    network.set_calibrated(56, {"running_mean": mean, "running_var": var + 0.5})
    network.temperatures = ((48, 0.5), (128, 2.0))
    folded = FoldedArchitecture(network.skeleton)
    blueprint = Blueprint.from_json(Blueprint.draw(network, folded).to_json())
    networks = MainNetworks(stored(network, tmp_path / "b.safetensors"), blueprint)
    for resolution, mode in (
        (96, Mode.PROXY),
        (56, Mode.IDEAL),
        (56, Mode.DATA_FREE),
        (128, Mode.IDEAL),
    ):
        expected = folded.generate(network, resolution, mode)
        floats = {n: t for n, t in expected.items() if t.is_floating_point()}
        found = networks.generate(resolution, mode)
        assert found.keys() == floats.keys()
        for name, array in found.items():
            np.testing.assert_allclose(array, floats[name].numpy(), rtol=2e-5, atol=1e-6)
    assert blueprint.weight_bytes > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_widened(make_network: Make, tmp_path: Path, dtype: torch.dtype) -> None:
    network = make_network()
    bundle = stored(network, tmp_path / "b.safetensors", dtype)
    folded = FoldedArchitecture(network.skeleton)
    found = MainNetworks(bundle, Blueprint.draw(network, folded)).generate(64)
    expected = folded.generate(bundle.network, 64)
    for name, array in found.items():
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, expected[name].numpy(), rtol=2e-5, atol=1e-6)


def test_tensors_of_another_architecture_are_refused(make_network: Make, tmp_path: Path) -> None:
    bundle = stored(make_network(), tmp_path / "b.safetensors")
    other = make_network("resnet18")
    blueprint = Blueprint.draw(other, FoldedArchitecture(other.skeleton))
    with pytest.raises(BundleMismatchError, match="do not fit"):
        MainNetworks(bundle, blueprint)


def test_reading_a_bundle_imports_no_torch() -> None:
    code = (
        "import sys; from san_core.bundle import read; import san_core.main_network.blueprint;"
        "import san_core.main_network.quantization; read().arrays; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
