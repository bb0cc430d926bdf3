"""The commands that prepare a network of one's own, with the service's engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from san_cli.__main__ import COMMANDS, Command, dispatch
from san_core import bundle as bundles
from san_core.bundle import Manifest
from san_core.network.network_config import NetworkConfig
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork

CLASSES = ("dark", "light")


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    for name, shade in zip(CLASSES, (60, 190), strict=True):
        (tmp_path / "labelled" / name).mkdir(parents=True)
        for index in range(6):
            noise = Image.effect_noise((90, 80), 20 + index).point(lambda v, s=shade: v + s - 128)
            noise.convert("RGB").save(tmp_path / "labelled" / name / f"{index}.png")
    return tmp_path / "labelled"


@pytest.fixture
def lifted(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = NetworkConfig("resnet18", (64, 48), len(CLASSES))
    network = ScaleAdaptiveNetwork(config).eval()
    path = tmp_path / "lifted.safetensors"
    bundles.save(path, network, Manifest(name="mine", network=config, classes=CLASSES))
    return path


def test_prepare_adds_int8_and_accuracy_and_leaves_its_source_alone(
    labelled: Path, lifted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, ready = lifted.read_bytes(), tmp_path / "ready.safetensors"
    command = ["prepare", str(lifted), "--data", str(labelled), "-o", str(ready)]
    assert dispatch(command, COMMANDS) == 0
    assert lifted.read_bytes() == before
    measured = {(a.resolution, a.precision) for a in bundles.read_manifest(ready).accuracy}
    assert measured == {(t, p) for t in (64, 48) for p in ("float", "int8")}
    assert f"san serve {ready}" in capsys.readouterr().out


def test_the_engine_measures_what_torch_measures(
    labelled: Path, lifted: Path, tmp_path: Path
) -> None:
    by_torch = {"evaluate": Command("training.commands.evaluate", "Measure with torch.")}
    fast, slow = tmp_path / "fast.safetensors", tmp_path / "slow.safetensors"
    for target, commands in ((fast, COMMANDS), (slow, by_torch)):
        command = ["evaluate", str(lifted), "--data", str(labelled), "-o", str(target)]
        command += ["--modes", "proxy,data_free", "--resolutions", "64,56,48", "--workers", "0"]
        assert dispatch(command, commands) == 0
    found = bundles.read_manifest(fast).accuracy
    assert len(found) == 6
    assert found == bundles.read_manifest(slow).accuracy
