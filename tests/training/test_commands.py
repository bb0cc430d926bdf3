import argparse
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

from san_cli.__main__ import COMMANDS, dispatch
from san_core import bundle
from san_core.errors import BundleNotFoundError
from san_core.mode import Mode
from tests.training.conftest import ARCHITECTURE
from training.commands import calibrate, evaluate, report, train
from training.errors import CheckpointError, DataError, RecipeError

SMALL = f"--arch {ARCHITECTURE} --resolutions 48,32 --epochs 1 --batch-size 12 --workers 0 --quiet"


def call(module: ModuleType, *arguments: object) -> int:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    code: int = module.run(parser.parse_args([str(a) for a in arguments]))
    return code


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    path = folder / "tiny.safetensors"
    options = ["--data", data, "--output", folder / "run", "--export", path, *SMALL.split()]
    assert call(train, *options) == 0
    return path


@pytest.fixture
def tiny(trained: Path, tmp_path: Path) -> Path:
    path = tmp_path / "tiny.safetensors"
    path.write_bytes(trained.read_bytes())
    return path


def test_train_makes_a_bundle_and_resumes_without_repeating_options(
    trained: Path, data: Path
) -> None:
    manifest = bundle.read_manifest(trained)
    assert manifest.network.architecture == ARCHITECTURE
    assert manifest.network.resolutions == (48, 32)
    run = trained.parent / "run"
    again = trained.parent / "again.safetensors"
    assert call(train, "--data", data, "--output", run, "--resume", "--export", again) == 0
    one, other = bundle.load(trained).network, bundle.load(again).network
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])
    with pytest.raises(CheckpointError, match="already holds a run"):
        call(train, "--data", data, "--output", run, *SMALL.split())


def test_what_train_refuses(tmp_path: Path, data: Path) -> None:
    with pytest.raises(RecipeError, match="--data"):
        call(train, "--output", tmp_path)
    with pytest.raises(RecipeError, match="--from"):
        call(train, "--output", tmp_path, "--images", data)
    with pytest.raises(RecipeError, match="one resolution"):
        call(train, "--output", tmp_path, "--data", data, "--baseline")
    with pytest.raises(DataError, match="nowhere"):
        call(train, "--output", tmp_path, "--data", tmp_path / "nowhere")


def test_a_run_is_announced_once_it_can_begin(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with caplog.at_level("INFO"), pytest.raises(BundleNotFoundError):
        call(train, "--from", "missing.safetensors", "--images", tmp_path)
    assert caplog.messages == []


def test_a_baseline_is_one_network_with_kernels_of_its_own(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.safetensors"
    options = SMALL.replace("48,32", "32").split()
    where = ["--data", data, "--output", tmp_path / "run", "--export", path]
    assert call(train, *where, *options, "--baseline", "--limit-images", 12) == 0
    network = bundle.load(path).network
    assert network.config.meta_learner == "private"
    assert network.resolutions == (32,)
    assert torch.equal(
        network.generate(96, Mode.IDEAL)["conv1.0.weight"],
        network.generate(32)["conv1.0.weight"],
    )


def test_evaluate_writes_json_and_the_bundles_manifest(
    tiny: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "accuracy.json"
    options = "--resolutions 48,40,32 --modes proxy,ideal,data_free --workers 0 --device cpu"
    assert call(evaluate, tiny, "--data", data, "--in-place", "--json", out, *options.split()) == 0
    entries = json.loads(out.read_text())["entries"]
    assert {(e["resolution"], e["mode"]) for e in entries} == {
        (side, mode.value) for side in (48, 40, 32) for mode in Mode
    }
    assert all(e["n"] == 15 and 0 <= e["top1"] <= e["top5"] <= 1 for e in entries)
    assert "(uncalibrated)" in capsys.readouterr().out
    manifest = bundle.read_manifest(tiny)
    assert len(manifest.accuracy) == 9
    noted = {(a.resolution, a.mode.value): a.top1 for a in manifest.accuracy}
    assert noted == {(e["resolution"], e["mode"]): e["top1"] for e in entries}

    before = tiny.read_bytes()
    assert call(evaluate, tiny, "--data", data, "--workers", 0) == 0
    assert tiny.read_bytes() == before
    assert "--in-place" in capsys.readouterr().out
    other = tmp_path / "other.safetensors"
    assert call(evaluate, tiny, "--data", data, "-o", other, "--workers", 0) == 0
    assert tiny.read_bytes() == before
    assert len(bundle.read_manifest(other).accuracy) == 9
    with pytest.raises(RecipeError, match="proxy, ideal, data_free"):
        call(evaluate, tiny, "--data", data, "--modes", "best")


def test_figures_are_kept_first_and_written_into_folders_that_are_made(
    tiny: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data)
    out = tmp_path / "new" / "folder" / "accuracy.json"
    where = ["--data", "val", "--limit", 6, "--workers", 0, "--device", "cpu", "--in-place"]
    assert call(evaluate, tiny, *where, "--json", out) == 0
    assert json.loads(out.read_text())["entries"]
    assert {a.dataset for a in bundle.read_manifest(tiny).accuracy} == {f"{data.name}/val"}

    loaded = bundle.load(tiny)
    bundle.save(tiny, loaded.network, loaded.manifest.model_copy(update={"accuracy": ()}))
    out.unlink()
    out.mkdir()  # nothing can be written there
    with pytest.raises(OSError, match="directory"):
        call(evaluate, tiny, *where, "--json", out)
    assert len(bundle.read_manifest(tiny).accuracy) == 2


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("evaluate {bundle} --data {data} --resolutions 8", "outside"),
        ("evaluate {bundle} --data {data} --resolutions 48,abc", "not a list of whole numbers"),
        ("evaluate {bundle} --data {data} --batch-size 0", "0 is below 1"),
        ("evaluate {bundle} --data {data} --limit -1", "-1 is below 0"),
        ("evaluate {bundle} --data {data} --device bogus", "--device bogus"),
        ("evaluate {bundle} --data {data} --device meta", "--device meta"),
        ("evaluate {bundle} --data {data} --device cuda:99", "--device cuda:99"),
        ("evaluate {bundle} --data {data} --json /proc/none/x.json", "The system refused"),
        (
            "calibrate {bundle} --images {data} --resolutions 40,abc -o x",
            "not a list of whole numbers",
        ),
        (
            "calibrate {bundle} --images {data} --resolutions 40 --device bogus -o x",
            "--device bogus",
        ),
        ("quantize {bundle} --images {data} --device bogus -o x", "--device bogus"),
        ("quantize {bundle} --images {data}", "--in-place"),
        ("lift --arch resnet18 --weights x -o y --mean 1,2", "three numbers"),
        ("report reproduce --data {data} --output {out} --resolutions 48", "at least two"),
        ("train --data {data}", "--output"),
    ],
)
def test_mistakes_are_one_sentence(
    line: str, why: str, tiny: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = line.format(bundle=tiny, data=data, out=tmp_path / "out").split()
    try:
        code = dispatch(words, COMMANDS)
    except SystemExit as stopped:  # argparse's own
        code = int(stopped.code or 0)
    assert code == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told.startswith(f"san {words[0]}")
    assert why in told


def test_an_interruption_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "run", interrupted)
    assert dispatch(["report", "curves", "nowhere"], COMMANDS) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_calibrate_keeps_the_number_type_and_forgets_what_no_longer_holds(
    tiny: Path, data: Path, tmp_path: Path
) -> None:
    loaded = bundle.load(tiny)
    bundle.save(tiny, loaded.network, loaded.manifest, dtype=torch.float16)
    options = ["--resolutions", "40", "--modes", "ideal,proxy", "--workers", 0, "--device", "cpu"]
    assert call(evaluate, tiny, "--data", data, "--in-place", *options) == 0
    small = tiny.stat().st_size

    out = tmp_path / "calibrated.safetensors"
    where = ["--images", data / "train", "--resolutions", "40,32", "--workers", 0, "-o", out]
    assert call(calibrate, tiny, *where, "--device", "auto") == 0
    manifest = bundle.read_manifest(out)
    assert manifest.calibrated == (40,)
    assert bundle.read_manifest(tiny).calibrated == ()
    assert [(a.resolution, a.mode) for a in manifest.accuracy if a.resolution == 40] == [
        (40, Mode.PROXY)
    ]
    assert out.stat().st_size < 1.2 * small  # still half precision


def test_curves_of_a_run(trained: Path, tmp_path: Path) -> None:
    run = trained.parent / "run"
    (run / "curves.png").unlink()
    assert call(report, "curves", run) == 0
    assert (run / "curves.png").is_file()
    with pytest.raises(DataError, match="no log"):
        call(report, "curves", tmp_path)


def test_a_run_needs_images(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert dispatch([], COMMANDS) == 2
    assert dispatch(["train", "--output", str(tmp_path)], COMMANDS) == 2
    assert "san train: Say where the images are" in capsys.readouterr().err
