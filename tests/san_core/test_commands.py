import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from san_cli.__main__ import COMMANDS, dispatch
from san_core.bundle import Accuracy, Manifest, load, save
from san_core.mode import Mode
from san_core.network.architectures import build
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork


@pytest.fixture(scope="module")
def bundle(
    make_network: Callable[..., ScaleAdaptiveNetwork], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    network = make_network("resnet18")
    path = tmp_path_factory.mktemp("bundle") / "tiny.safetensors"
    figures = [(96, Mode.PROXY, 0.7), (80, Mode.PROXY, 0.6), (80, Mode.DATA_FREE, 0.61)]
    accuracy = tuple(
        Accuracy(resolution=r, mode=m, top1=t, top5=1, n=50, dataset="drawn") for r, m, t in figures
    )
    classes = tuple(f"thing {i}" for i in range(7))
    manifest = Manifest(name="tiny", network=network.config, classes=classes, accuracy=accuracy)
    save(path, network, manifest)
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "noise.png"
    Image.effect_noise((120, 90), 80).convert("RGB").save(path)
    return path


def san(*arguments: object) -> int:
    return dispatch([str(argument) for argument in arguments], COMMANDS)


def test_describe_shows_points_and_cost(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert san("describe", bundle, "--all") == 0
    text = capsys.readouterr().out
    assert "resnet18, 7 classes" in text
    assert "96, 64, 48" in text
    (row,) = [line for line in text.splitlines() if "data_free" in line]
    assert row.split()[:4] == ["80", "interpolated", "data_free", "float"]
    assert "61.00%" in row
    assert san("describe", bundle) == 0
    short = capsys.readouterr().out
    assert [line.split()[0] for line in short.splitlines()[-3:]] == ["96", "80", "1"]
    assert "drawn (50 images)" in short


def test_describe_works_without_torch(
    bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert san("describe", bundle) == 0
    text = capsys.readouterr().out
    assert "resnet18, 7 classes" in text
    assert "96, 64, 48" in text


def test_exported_safetensors_is_a_stock_state_dict(bundle: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "folder" / "net.safetensors"
    command = ("export", bundle, "--resolution", 80, "--mode", "data_free")
    assert san(*command, "--format", "safetensors", "-o", output) == 0
    stock = build("resnet18", 7).eval()
    stock.load_state_dict(load_file(output))
    images = torch.rand(2, 3, 80, 80)
    with torch.no_grad():
        expected = load(bundle).network(images, 80, Mode.DATA_FREE)
        torch.testing.assert_close(stock(images), expected)


def test_exported_onnx_runs_in_onnxruntime_at_any_batch_size(bundle: Path, tmp_path: Path) -> None:
    output = tmp_path / "net.onnx"
    assert san("export", bundle, "--resolution", 64, "--format", "onnx", "-o", output) == 0
    session = onnxruntime.InferenceSession(output)
    network = load(bundle).network
    for n in (1, 3):
        images = torch.rand(n, 3, 64, 64)
        (logits,) = session.run(["logits"], {"images": images.numpy()})
        expected = network(images, 64).numpy()
        np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-4)
    facts = session.get_modelmeta().custom_metadata_map
    assert facts["resolution"] == "64"
    assert json.loads(facts["classes"])[0] == "thing 0"
