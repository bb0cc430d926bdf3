"""Temperatures without labels."""

from pathlib import Path

import pytest
import torch

from san_cli.__main__ import COMMANDS, dispatch
from san_core import bundle as bundles
from san_core.bundle import Manifest
from san_core.network.scale_adaptive_network import NetworkConfig, ScaleAdaptiveNetwork
from tests.training.conftest import CLASSES
from training.evaluation.accuracy import calibration_error
from training.evaluation.confidence import confidence, expected_accuracy, temperature_for


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.8])
def test_the_mean_score_becomes_the_rate(rate: float) -> None:
    logits = torch.randn(200, 10, generator=torch.Generator().manual_seed(0))
    found = temperature_for(logits, rate)
    assert confidence(logits, found) == pytest.approx(rate, abs=1e-4)


def test_a_rate_out_of_reach_gets_an_end_of_the_range() -> None:
    logits = torch.randn(20, 10)
    assert temperature_for(logits, 0.0) == pytest.approx(10.0)
    assert temperature_for(logits, 1.0) == pytest.approx(0.1)


def test_a_judge_of_known_accuracy_does_not_count_shared_mistakes_as_right() -> None:
    judge = 3 * torch.randn(200, 10, generator=torch.Generator().manual_seed(0))
    same, other = judge.argmax(1), judge.argmin(1)
    assert expected_accuracy(same, judge, None) == 1.0
    assert expected_accuracy(same, judge, 0.7) == pytest.approx(0.7, abs=1e-3)
    assert expected_accuracy(other, judge, None) == 0.0
    assert 0.0 < expected_accuracy(other, judge, 0.7) < 0.05


def test_the_calibration_error_is_the_mean_distance_over_images() -> None:
    right = torch.tensor([[10.0, 8.0, 8.0], [30.0, 27.0, 27.0]])
    assert calibration_error(right) == 0.0
    wrong = torch.tensor([[10.0, 8.0, 4.0], [30.0, 27.0, 29.0]])
    assert calibration_error(wrong) == pytest.approx((4 + 2) / 40)
    assert calibration_error(torch.zeros(15, 3)) == 0.0


def _write(path: Path, seed: int, classes: tuple[str, ...] = CLASSES) -> None:
    torch.manual_seed(seed)
    network = ScaleAdaptiveNetwork(NetworkConfig("resnet18", (48, 32), len(classes)))
    manifest = Manifest(name=path.stem, network=network.config, classes=classes)
    bundles.save(path, network, manifest)


def test_the_command_writes_a_temperature_for_every_trained_resolution(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, judge, other = (tmp_path / f"{name}.safetensors" for name in ("ours", "judge", "other"))
    _write(ours, 0)
    _write(judge, 1)
    _write(other, 2, (*CLASSES, "one more"))
    command = ["temper", str(ours), "--images", str(data / "train"), "--limit", "8", "--in-place"]
    command += ["--workers", "0", "--judge"]
    assert dispatch([*command, str(other)], COMMANDS) == 2
    assert "other classes" in capsys.readouterr().err
    assert dispatch([*command, str(judge)], COMMANDS) == 0
    loaded = bundles.load(ours)
    assert [resolution for resolution, _ in loaded.network.temperatures] == [32, 48]
    assert loaded.manifest.provenance["temperatures"] == {"judge": "judge", "images": 8}
    assert "agrees with the judge" in capsys.readouterr().out
    assert (
        dispatch([*command, str(judge), "--judge-accuracy", "0.6", "--also", "40"], COMMANDS) == 0
    )
    assert [resolution for resolution, _ in bundles.load(ours).network.temperatures] == [32, 40, 48]
    told = bundles.load(ours).manifest.provenance["temperatures"]
    assert told == {"judge": "judge", "images": 8, "judge_accuracy": 0.6}
    with pytest.raises(SystemExit):
        dispatch([*command, str(judge), "--judge-accuracy", "60"], COMMANDS)
