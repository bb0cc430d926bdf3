import argparse
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from san_core import bundle
from san_core.bundle import Manifest
from san_core.mode import Mode
from san_core.network.architectures import build
from san_core.network.network_config import NetworkConfig
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from training.commands import train as command
from training.config import Recipe, load_recipe, make_recipe
from training.data.folder import index_unlabelled
from training.data.mixing import ResolutionDraw
from training.distil import distil
from training.errors import DataError, RecipeError
from training.export import stored_type
from training.lift.lift import lift
from training.loop import runlog
from training.loop.objective import Batch, Passes
from training.run import Task, recipe_fields
from training.runtime.distributed import Group

RESOLUTIONS = (64, 48, 32)
CLASSES = ("a", "b", "c")


def lifted() -> ScaleAdaptiveNetwork:
    torch.manual_seed(0)
    state = build("mobilenet_v2", len(CLASSES)).state_dict()
    made = lift(
        "mobilenet_v2", {64: state}, native=64, resolutions=RESOLUTIONS, num_classes=len(CLASSES)
    )
    return made.network


@pytest.fixture
def source(tmp_path: Path) -> Path:
    network = lifted()
    path = tmp_path / "lifted.safetensors"
    told = {"licence": "Apache-2.0"}
    manifest = Manifest(name="lifted", network=network.config, classes=CLASSES, provenance=told)
    bundle.save(path, network, manifest)
    return path


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("unlabelled")
    rng = np.random.default_rng(0)
    for index in range(20):
        small = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(small).resize((96, 72)).save(root / f"{index:02}.jpg")
    return root


def batch(*sides: int) -> Batch:
    torch.manual_seed(1)
    return Batch({side: torch.randn(3, 3, side, side) for side in sides}, None)


def passes() -> Passes:
    return Passes(lambda loss: torch.autograd.backward(loss))


def distilled(source: Path, images: Path, run: Path, *options: str) -> tuple[int, Path]:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    out = run.with_suffix(".safetensors")
    given = [
        *("--from", str(source), "--images", str(images), "--output", str(run)),
        *("--export", str(out), "--epochs", "2", "--batch-size", "4", "--workers", "0"),
        *("--hold-out", "0.2", "--crop-area", "0.5", "--device", "cpu", "--quiet"),
        *("--learning-rate", "1e-3", "--weight-decay", "1e-4", "--ema-decay", "0.5"),
        *("--warmup-epochs", "0", "--no-between", "--mixup", "0", "--cutmix", "0"),
        *("--validate-every", "1", "--no-channels-last"),
    ]
    return command.run(parser.parse_args([*given, *options])), out


def test_the_native_resolution_is_where_the_network_was_lifted() -> None:
    assert distil.native_resolution(lifted()) == 64


def test_a_network_that_was_never_lifted_has_no_teacher() -> None:
    network = ScaleAdaptiveNetwork(NetworkConfig("mobilenet_v2", RESOLUTIONS, 3))
    with pytest.raises(RecipeError, match="not lifted"):
        distil.native_resolution(network)


def test_resolutions_between_lie_on_the_grid() -> None:
    assert distil.between((224, 192, 160, 128, 96)) == (112, 144, 176, 208)
    assert distil.between((40, 32)) == ()


def test_what_a_batch_holds_follows_the_recipe() -> None:
    network = lifted()
    draw = distil.resolution_draw(network, Recipe())
    assert draw == ResolutionDraw((64, 32), (48,), 1)
    draw = distil.resolution_draw(network, Recipe(always=(48, 32), drawn=0))
    assert draw(np.random.default_rng(0)) == (64, 48, 32)
    with pytest.raises(RecipeError, match="always"):
        distil.resolution_draw(network, Recipe(always=(56,)))


def test_the_student_starts_as_the_teacher_on_equal_images() -> None:
    objective = distil.NativeTeacher(lifted(), ResolutionDraw((64, 32), (48,)))
    same = torch.randn(2, 3, 64, 64)
    parts = objective.run(Batch({64: same, 48: same}, None), passes())
    assert abs(float(parts.loss)) < 1e-5


def test_gradients_are_those_of_the_unfolded_network() -> None:
    network = lifted()
    objective = distil.NativeTeacher(network, ResolutionDraw((64, 32), (48,)), feature_weight=0.0)
    objective.train()
    with torch.no_grad():
        network.meta_learner.weight.normal_(0.0, 0.02)
    data = batch(64, 32)
    objective.run(data, passes())
    got = {name: p.grad.clone() for name, p in objective.trained_parameters() if p.grad is not None}
    network.zero_grad()
    target = network(data.images[64], 64).detach().log_softmax(1)
    student = network(data.images[32], 32).log_softmax(1)
    nn.functional.kl_div(student, target, reduction="batchmean", log_target=True).backward()
    assert got.keys() == {
        "meta_learner.weight",
        "batch_norms.32.weight",
        "batch_norms.32.bias",
    }
    for name, gradient in got.items():
        expected = network.get_parameter(name).grad
        scale = float(expected.abs().max())
        torch.testing.assert_close(gradient, expected, atol=1e-4 * scale, rtol=1e-3)


def test_between_resolutions_teach_both_neighbours() -> None:
    network = lifted()
    objective = distil.NativeTeacher(network, ResolutionDraw((64, 32), (48, 40)))
    objective.run(batch(64, 40), passes())
    for side in (48, 32):
        gradient = network.batch_norm(side).weight.grad
        assert gradient is not None
        assert gradient.abs().max() > 0


def test_features_count_if_asked() -> None:
    data = batch(64, 32)
    plain = distil.NativeTeacher(lifted(), ResolutionDraw((64, 32), ())).run(data, passes())
    with_features = distil.NativeTeacher(
        lifted(), ResolutionDraw((64, 32), ()), feature_weight=0.5
    ).run(data, passes())
    distance = float(with_features.losses["features/32"])
    assert distance > 0
    assert float(with_features.loss) == pytest.approx(float(plain.loss) + 0.5 * distance, rel=1e-5)


def test_statistics_stay_frozen_and_the_native_point_exact(
    source: Path, images: Path, tmp_path: Path
) -> None:
    code, out = distilled(source, images, tmp_path / "run", "--mixup", "0.3", "--cutmix", "0.3")
    assert code == 0
    before, after = bundle.load(source).network, bundle.load(out).network
    changed = {
        name
        for name, tensor in after.state_dict().items()
        if not torch.equal(tensor, before.state_dict()[name])
    }
    assert changed == {
        "meta_learner.weight",
        *(f"batch_norms.{side}.{kind}" for side in (48, 32) for kind in ("weight", "bias")),
    }
    for name, tensor in after.generate(64).items():
        assert torch.equal(tensor, before.generate(64, Mode.PROXY)[name])


def test_the_kernels_are_trained_only_if_asked(source: Path, images: Path, tmp_path: Path) -> None:
    _, out = distilled(source, images, tmp_path / "run", "--train-kernels")
    before, after = bundle.load(source).network, bundle.load(out).network
    assert not torch.equal(before.meta_learner.bias, after.meta_learner.bias)


def test_slopes_stay_if_only_batch_norms_are_trained_and_storage_is_the_sources(
    source: Path, images: Path, tmp_path: Path
) -> None:
    start = bundle.load(source)
    bundle.save(source, start.network, start.manifest, dtype=torch.float16)
    _, out = distilled(source, images, tmp_path / "run", "--no-train-slopes")
    before, after = bundle.load(source).network, bundle.load(out).network
    assert torch.equal(before.meta_learner.weight, after.meta_learner.weight)
    assert not torch.equal(before.batch_norm(32).bias, after.batch_norm(32).bias)
    assert stored_type(out) is torch.float16


def test_agreement_with_the_teacher_is_logged_but_never_published(
    source: Path, images: Path, tmp_path: Path
) -> None:
    _, out = distilled(source, images, tmp_path / "run")
    manifest = bundle.read_manifest(out)
    assert manifest.accuracy == ()
    assert manifest.classes == CLASSES
    assert manifest.provenance["licence"] == "Apache-2.0"
    assert manifest.provenance["started_from"] == "lifted"
    events = runlog.read(tmp_path / "run" / runlog.FILE_NAME)
    agreement = [e["validation"] for e in events if "validation" in e]
    assert len(agreement) == 2
    assert all(epoch["64"] == 1.0 for epoch in agreement)


def test_an_interrupted_run_continues_exactly(source: Path, images: Path, tmp_path: Path) -> None:
    _, whole = distilled(source, images, tmp_path / "whole", "--mixup", "0.5")
    _, _ = distilled(source, images, tmp_path / "parts", "--mixup", "0.5")
    # The checkpoint of a finished run has nothing left to do and exports the same bundle.
    _, again = distilled(source, images, tmp_path / "parts", "--mixup", "0.5", "--resume")
    a, b = bundle.load(whole).network.state_dict(), bundle.load(again).network.state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_training_reduces_the_divergence(source: Path, images: Path, tmp_path: Path) -> None:
    options = ("--epochs", "12", "--learning-rate", "3e-3", "--drawn", "0")
    distilled(source, images, tmp_path / "run", *options)
    events = runlog.read(tmp_path / "run" / runlog.FILE_NAME)
    losses = [e["loss"] for e in events if e["kind"] == "step"]
    assert losses[-1] < 0.7 * losses[0]


def test_the_held_out_part_is_disjoint_and_spread(images: Path) -> None:
    training, held = distil.split(index_unlabelled(images), 0.2)
    assert len(training) == 16
    assert len(held) == 4
    assert not {*training.files} & {*held.files}
    assert distil.split(index_unlabelled(images), 0.0)[1].files == ()


def test_other_resolutions_than_the_bundles_are_refused(source: Path, images: Path) -> None:
    with pytest.raises(RecipeError, match=r"has resolutions = \(64, 48, 32\)"):
        distil.prepare(source, images, None, lambda d: make_recipe(d, {"resolutions": (64, 32)}))


def test_a_bundle_and_images_are_enough(
    source: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen = {}

    def train(_task: Task, recipe: Recipe, _group: Group, folder: Path, **options: object) -> bool:
        seen.update(options, recipe=recipe, folder=folder)
        return True

    monkeypatch.setattr(command, "train", train)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    given = ["--from", str(source), "--images", str(images)]
    assert command.run(parser.parse_args(given)) == 0
    assert seen["folder"] == Path("runs/lifted")
    assert seen["bundle"] == Path("runs/lifted/bundle.safetensors")
    expected = make_recipe(load_recipe("distil"), recipe_fields(bundle.read_manifest(source)))
    assert seen["recipe"] == expected


def test_labels_are_shown_and_agreement_still_decides_what_is_kept(
    source: Path, images: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start = bundle.load(source)
    unsorted = start.manifest.model_copy(update={"classes": ("c", "a", "b")})
    bundle.save(source, start.network, unsorted)
    for name, picture in zip("abc", sorted(images.iterdir()), strict=False):
        folder = tmp_path / "data" / "val" / name
        folder.mkdir(parents=True)
        (folder / "1.jpg").write_bytes(picture.read_bytes())
    with caplog.at_level("INFO"):
        task, _ = distil.prepare(source, images, tmp_path / "data", make_recipe)
    said = "learns 48, 32 px from 18 photographs; 2 more are held out."
    assert caplog.messages[0].endswith(said)
    assert task.classes == ("c", "a", "b")
    assert task.validation is not None
    assert task.validation.labels == (1, 2, 0)
    data = ("--data", str(tmp_path / "data"))
    _, out = distilled(source, images, tmp_path / "run", *data)
    manifest = bundle.read_manifest(out)
    assert "agreement_by_share_kept" in manifest.provenance
    assert [(a.resolution, a.n, a.dataset) for a in manifest.accuracy] == [
        (side, 3, "data/val") for side in RESOLUTIONS
    ]


def test_too_few_images_for_a_batch_are_refused_by_name(
    source: Path, images: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="--batch-size"):
        distilled(source, images, tmp_path / "run", "--batch-size", "32")


def test_calibrated_statistics_do_not_outlive_further_training(
    source: Path, images: Path, tmp_path: Path
) -> None:
    start = bundle.load(source)
    flat = start.network.batch_norm(48).flat()
    start.network.set_calibrated(40, {n: flat[n] for n in ("running_mean", "running_var")})
    bundle.save(source, start.network, start.manifest)
    assert bundle.read_manifest(source).calibrated == (40,)
    _, out = distilled(source, images, tmp_path / "run", "--epochs", "1")
    assert bundle.read_manifest(out).calibrated == ()


def test_what_was_kept_is_told_in_sentences() -> None:
    told = list(distil._told({1.0: 0.2, 0.5: 0.4}, {192: (0.5, 0.6), 160: (0.4, 0.3)}, 12))
    assert told == [
        "Kept 50% of what was learnt: it agrees best with the teacher (40.0% of 12 photographs "
        "that were held out).",
        "192 px: 60.0% before training, 50.0% after; kept: the pretrained one.",
        "160 px: 30.0% before training, 40.0% after; kept: the trained one.",
    ]
