"""Calibrating int8 without labels."""

from pathlib import Path

import pytest
import torch

from san_cli.__main__ import COMMANDS, dispatch
from san_core import bundle as bundles
from san_core.bundle import Accuracy, Manifest
from san_core.main_network.folding import FoldedArchitecture
from san_core.main_network.quantization import (
    Int8Simulation,
    Range,
    quantisable,
    ranges_for,
    to_extras,
)
from san_core.mode import Mode
from san_core.network.network_config import NetworkConfig
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from san_core.preprocessing import Preprocessing
from tests.training.conftest import CLASSES
from training.data.folder import index_labelled
from training.evaluation.probes import Probe, Rounded, measure
from training.evaluation.quantize import Histogram, calibrate_ranges, sensitivities
from training.runtime.distributed import Group


@pytest.fixture
def network() -> ScaleAdaptiveNetwork:
    torch.manual_seed(0)
    config = NetworkConfig("resnet18", (48, 32), len(CLASSES))
    return ScaleAdaptiveNetwork(config).requires_grad_(False).eval()


def test_a_histogram_grows_with_what_it_sees() -> None:
    histogram = Histogram()
    for scale in (1.0, 7.0, 0.1):
        histogram.add(torch.linspace(0, scale, 1001))
    assert histogram.peak == 8.0
    assert histogram.counts.sum() == 3 * 1001
    assert not histogram.signed
    below_one = histogram.counts[: 2048 // 8].sum()
    assert below_one == pytest.approx(1001 + 1001 + 1001 / 7, rel=0.02)


def test_an_even_distribution_is_not_clipped() -> None:
    histogram = Histogram()
    histogram.add(torch.linspace(0, 6, 100_000))
    assert histogram.best_range() == Range(6.0, False)


def test_a_lonely_outlier_is_clipped() -> None:
    histogram = Histogram()
    histogram.add(torch.cat([torch.randn(1_000_000), torch.tensor([100.0])]))
    found = histogram.best_range()
    assert found.signed
    assert 3 < found.high < 60


def test_silence_has_a_range_too() -> None:
    histogram = Histogram()
    histogram.add(torch.zeros(10))
    assert histogram.best_range().high > 0


def test_calibrated_ranges_keep_the_network_close(network: ScaleAdaptiveNetwork) -> None:
    folded = FoldedArchitecture(network.skeleton)
    images = torch.randn(8, 3, 48, 48)
    ranges = calibrate_ranges(network, folded, 48, images.split(4))
    assert set(ranges) == set(quantisable(folded.module))
    assert ranges["conv1"].signed
    assert not ranges["layer1.0.conv2"].signed
    tensors = folded.fold(network.generate(48))
    with torch.no_grad():
        exact = network(images, 48)
        rounded = Int8Simulation(folded)(images, tensors, ranges)
    assert (rounded - exact).abs().max() < 0.1 * exact.abs().max()


def test_the_layer_with_a_bad_range_is_the_sensitive_one(network: ScaleAdaptiveNetwork) -> None:
    folded = FoldedArchitecture(network.skeleton)
    images = torch.randn(4, 3, 32, 32)
    ranges = calibrate_ranges(network, folded, 32, [images])
    ranges["layer2.0.conv1"] = Range(1e-3, False)
    shares = sensitivities(network, folded, 32, images, ranges)
    assert max(shares, key=lambda name: shares[name]) == "layer2.0.conv1"
    assert shares["layer2.0.conv1"] > 0.01


def _write(path: Path, network: ScaleAdaptiveNetwork) -> None:
    figures = {"top1": 0.5, "top5": 1.0, "n": 10, "dataset": "test"}
    accuracy = (
        Accuracy(resolution=48, mode=Mode.PROXY, **figures),
        Accuracy(resolution=48, mode=Mode.PROXY, precision="int8", **figures),
    )
    manifest = Manifest(name="t", network=network.config, classes=CLASSES, accuracy=accuracy)
    bundles.save(path, network, manifest, extras={"quantization.99.old": torch.zeros(2)})


def test_the_command_writes_ranges_for_every_trained_resolution(
    network: ScaleAdaptiveNetwork, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "b.safetensors", tmp_path / "q.safetensors"
    _write(path, network)
    before = path.read_bytes()
    command = ["quantize", str(path), "--images", str(data / "train"), "-o", str(out)]
    assert (
        dispatch([*command, "--limit", "8", "--workers", "0", "--keep-float", "conv1"], COMMANDS)
        == 0
    )
    assert path.read_bytes() == before
    loaded = bundles.load(out)
    for resolution in (48, 32):
        ranges = ranges_for(loaded.network, loaded.extras, resolution, Mode.PROXY)
        assert "conv1" not in ranges
        assert len(ranges) >= 15
    assert not any("99" in name for name in loaded.extras)
    assert [a.precision for a in loaded.manifest.accuracy] == ["float"]
    assert loaded.manifest.provenance["quantization"]["images"] == 8
    assert "conv1" in loaded.manifest.provenance["quantization"]["float_layers"]
    assert "layers in int8" in capsys.readouterr().out


def test_a_layer_that_does_not_exist_cannot_be_kept(
    network: ScaleAdaptiveNetwork, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "b.safetensors"
    _write(path, network)
    images = str(data / "train")
    command = ["quantize", str(path), "--images", images, "--in-place", "--keep-float", "nose"]
    assert dispatch(command, COMMANDS) == 2
    assert "nose" in capsys.readouterr().err


def test_int8_is_evaluated_like_any_other_point(
    network: ScaleAdaptiveNetwork, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "b.safetensors"
    _write(path, network)
    evaluate = ["evaluate", str(path), "--data", str(data), "--workers", "0", "--device", "cpu"]
    evaluate += ["--precisions", "float,int8", "--in-place"]
    assert dispatch(evaluate, COMMANDS) == 2
    assert "san quantize" in capsys.readouterr().err
    images = ["--images", str(data / "train"), "--limit", "4", "--workers", "0"]
    assert dispatch(["quantize", str(path), "--in-place", *images], COMMANDS) == 0
    assert dispatch(evaluate, COMMANDS) == 0
    found = {(a.resolution, a.precision): a for a in bundles.load(path).manifest.accuracy}
    assert set(found) == {(48, "float"), (48, "int8"), (32, "float"), (32, "int8")}
    assert all(accuracy.n == 15 for accuracy in found.values())


def test_rounding_to_int8_shows_in_what_is_measured(
    network: ScaleAdaptiveNetwork, data: Path
) -> None:
    folder = index_labelled(data / "val")
    group = Group(0, 1, torch.device("cpu"))
    folded = FoldedArchitecture(network.skeleton)
    # Ranges so wide that every activation becomes zero: only the biases are left, one answer.
    wide = {name: Range(1e9, signed=True) for name in quantisable(folded.module)}
    probe = Probe(32, 32)
    rounded = Rounded(probe, to_extras(32, wide), folded)
    found = measure(network, [probe, rounded], folder, Preprocessing(), group, workers=0)
    assert found.scores[rounded].hits1 == len(folder) // len(CLASSES)
