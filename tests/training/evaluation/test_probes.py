import json
from pathlib import Path

import pytest
import torch

from san_core.bundle import Bundle, Manifest
from san_core.mode import Mode
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from san_core.preprocessing import Preprocessing, decode
from tests.training.conftest import CLASSES, MakeNetwork
from training.data.folder import ImageFolder, index_labelled
from training.errors import DataError
from training.evaluation.accuracy import Score
from training.evaluation.calibrate import calibrate_all, calibration_images
from training.evaluation.evaluate import AFTER, BEFORE, Entry, Evaluation, evaluate
from training.evaluation.probes import Calibrated, Probe, Uncalibrated, measure, serving_probe
from training.report import evaluation_page
from training.runtime.distributed import Group

TESTS = (72, 64, 56, 48, 32)


def shaken(network: ScaleAdaptiveNetwork) -> ScaleAdaptiveNetwork:
    """Give every main network batch norms of its own, as training would."""
    torch.manual_seed(3)
    for norm in network.batch_norms.values():
        for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            assert isinstance(tensor, torch.Tensor)
            tensor.data += 0.5 * torch.rand_like(tensor)
    return network.eval()


@pytest.fixture
def folder(data: Path) -> ImageFolder:
    return index_labelled(data / "val", CLASSES)


@pytest.fixture
def bundle(make_network: MakeNetwork) -> Bundle:
    network = shaken(make_network())
    return Bundle(Manifest(name="tiny", network=network.config, classes=CLASSES), network)


def test_a_probe_scores_what_the_network_says_image_by_image(
    bundle: Bundle, folder: ImageFolder, alone: Group
) -> None:
    preprocessing = Preprocessing()
    probes = [Probe(56, 48), Probe(56, 56, Mode.DATA_FREE)]
    found = measure(bundle.network, probes, folder, preprocessing, alone, batch_size=4, workers=0)
    for probe in probes:
        expected = []
        for index, label in enumerate(folder.labels):
            images = preprocessing(decode(folder.path(index)), 56)[None]
            with torch.no_grad():
                expected.append(
                    int(bundle.network(images, probe.row, probe.mode).argmax()) == label
                )
        assert found.hits[probe].tolist() == expected
        assert found.scores[probe].hits1 == sum(expected)
        assert found.scores[probe].n == len(folder) == found.scores[probe].hits5  # three classes
    assert found.read.all()


def test_what_is_served_is_the_nearest_row_unless_the_mode_has_its_own(bundle: Bundle) -> None:
    trained = bundle.network.resolutions
    assert serving_probe(56, Mode.PROXY, trained) == Probe(56, 48)
    assert serving_probe(48, Mode.IDEAL, trained) == Probe(48, 48)
    assert serving_probe(56, Mode.IDEAL, trained) == Probe(56, 56, Mode.IDEAL)
    for test, mode in ((56, Mode.PROXY), (48, Mode.IDEAL), (56, Mode.DATA_FREE)):
        served = serving_probe(test, mode, trained).state(bundle.network)
        asked = bundle.network.generate(test, mode)
        assert all(torch.equal(served[name], asked[name]) for name in asked)


def test_ideal_inference_of_any_row_before_and_after_calibration(
    bundle: Bundle, data: Path
) -> None:
    network = bundle.network
    ideal, row = network.generate(56, Mode.IDEAL), network.generate(64, Mode.PROXY)
    state = Uncalibrated(56, 64).state(network)
    assert torch.equal(state["conv1.weight"], ideal["conv1.weight"])
    assert torch.equal(state["bn1.running_mean"], row["bn1.running_mean"])

    images = calibration_images(data, 20, Preprocessing(), torch.device("cpu"), workers=0)
    calibrate_all(network, (56, 48), images)
    assert network.calibrated_resolutions == (56,)  # nothing to calibrate where it is trained
    holder = network.calibrated["56"]
    statistics = {n: getattr(holder, n) for n in ("running_mean", "running_var")}
    after = Calibrated(56, 48, statistics).state(network)
    served = network.generate(56, Mode.IDEAL)
    assert all(torch.equal(after[name], served[name]) for name in served)
    assert not torch.equal(served["bn1.running_mean"], ideal["bn1.running_mean"])


def test_calibration_needs_training_images(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="train"):
        calibration_images(tmp_path, 5, Preprocessing(), torch.device("cpu"))


def test_a_full_evaluation_has_every_table_of_the_paper(
    bundle: Bundle, folder: ImageFolder, data: Path, alone: Group, tmp_path: Path
) -> None:
    images = calibration_images(data, 12, Preprocessing(), torch.device("cpu"), workers=0)
    calibrate_all(bundle.network, TESTS, images)
    found = evaluate(bundle, folder, TESTS, list(Mode), alone, full=True, images=images, workers=0)
    assert len(found.entries) == len(TESTS) * len(Mode)
    assert found.rows.keys() == {(row, test) for row in (64, 48, 32) for test in TESTS}
    assert found.panels[BEFORE].keys() == found.panels[AFTER].keys()
    assert {test for _, test in found.panels[BEFORE]} == {56}  # interpolated; 72 is extrapolated
    nearest_row = found.rows[48, 56]
    assert nearest_row == next(
        e.score for e in found.entries if (e.resolution, e.mode) == (56, Mode.PROXY)
    )
    assert found.panels[AFTER][48, 56] == next(
        e.score for e in found.entries if (e.resolution, e.mode) == (56, Mode.IDEAL)
    )
    assert [found.miss_hit[i][i] for i in range(3)] == [0.0] * 3
    assert set(found.ratios) == {"conv1", "conv2"}
    assert set(found.batch_norms["running_var"]) == {"64", "48", "32"}

    written = {path.name for path in evaluation_page.write(found, tmp_path / "report")}
    assert written == {"evaluation.json", "evaluation.md", "rows.png", "batch_norms.png"}
    text = (tmp_path / "report" / "evaluation.md").read_text()
    for title in ("What is served", "Every row", "Ideal before calibration", "Ratio of W to b"):
        assert title in text
    facts = json.loads((tmp_path / "report" / "evaluation.json").read_text())
    entry = facts["entries"][0]
    assert {"resolution", "mode", "top1", "top5", "n", "top1_interval"} <= entry.keys()
    assert facts["trained"] == [64, 48, 32]


def test_float_and_int8_stand_side_by_side() -> None:
    entries = [
        Entry(64, Mode.PROXY, Score(100, 80, 100), False),
        Entry(64, Mode.PROXY, Score(100, 70, 100), False, "int8"),
    ]
    text = evaluation_page.served_table(Evaluation("tiny", (64,), (64,), entries))
    assert "| resolution | trained | proxy | proxy int8 |" in text
    assert "80.0" in text
    assert "70.0" in text
