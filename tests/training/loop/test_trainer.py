import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from san_core.bundle import load as load_bundle
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from san_core.preprocessing import Preprocessing
from tests.training.conftest import CLASSES, MakeNetwork
from training import run
from training.config import Recipe, make_recipe
from training.data.folder import index_training
from training.errors import CheckpointError, DivergedError, RecipeError
from training.loop import checkpoint, runlog
from training.loop.objective import Batch, MixedScale, Parts, Passes
from training.loop.trainer import Trainer
from training.run import Task
from training.runtime.distributed import Group
from training.runtime.interrupt import StopRequest

RECIPE = make_recipe(
    {
        "architecture": "tiny",
        "resolutions": (64, 48, 32),
        "epochs": 4,
        "batch_size": 6,
        "learning_rate": 0.05,
        "warmup_epochs": 1.0,
        "workers": 0,
        "crop_area": 0.6,
    }
)

MakeTask = Callable[..., Task]


@pytest.fixture
def make_task(data: Path, make_network: MakeNetwork) -> MakeTask:
    def make(*, validate: bool = False, **options: object) -> Task:
        training, validation = index_training(data)
        network = make_network(**options)
        seen = validation if validate else None
        return Task(network, CLASSES, Preprocessing(), training, seen, run.mixed_scale)

    return make


def changed(**fields: object) -> Recipe:
    return make_recipe(RECIPE.model_dump(), fields)


def weights(network: ScaleAdaptiveNetwork) -> dict[str, torch.Tensor]:
    return {name: t.clone() for name, t in network.state_dict().items()}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    different = [name for name, t in one.items() if not torch.equal(t, other[name])]
    assert different == []


def test_loss_falls_and_everything_is_logged(
    make_task: MakeTask, alone: Group, tmp_path: Path
) -> None:
    task = make_task(validate=True)
    assert run.train(task, changed(epochs=12, validate_every=6), alone, tmp_path, quiet=True)
    events = runlog.read(tmp_path / runlog.FILE_NAME)
    steps = [event for event in events if event["kind"] == "step"]
    epochs = [event for event in events if event["kind"] == "epoch"]
    assert steps[-1]["loss"] < 0.75 * steps[0]["loss"]
    assert set(steps[0]["losses"]) >= {"cross_entropy/64", "distillation/32"}
    assert [event["epoch"] for event in epochs] == list(range(1, 13))
    validated = [event for event in epochs if "validation" in event]
    assert [event["epoch"] for event in validated] == [6, 12]
    assert set(validated[0]["validation"]) == {"64", "48", "32"}
    assert 0.0 <= epochs[-1]["data_wait"] <= 1.0
    assert (tmp_path / "curves.png").stat().st_size > 5000
    assert "epochs = 12" in (tmp_path / "recipe.toml").read_text()


def test_stopping_and_resuming_gives_the_weights_of_an_uninterrupted_run(
    make_task: MakeTask, alone: Group, tmp_path: Path
) -> None:
    for name, fields in {
        "sgd": {"accumulate": 2, "batch_size": 3},
        "adamw": {"optimizer": "adamw", "ema_decay": 0.9, "clip_norm": 1.0},
    }.items():
        recipe = changed(epochs=2, **fields)
        whole = make_task()
        assert run.train(whole, recipe, alone, tmp_path / name / "whole", quiet=True)

        folder = tmp_path / name / "parts"
        trainer = stoppable(make_task(), recipe, alone, folder, after=4)
        assert not trainer.fit()
        assert checkpoint.read_state(trainer.path)["position"] == {"epoch": 0, "step": 4}
        again = make_task()
        assert run.train(again, recipe, alone, folder, resume=True, quiet=True)
        assert_same(weights(again.network), weights(whole.network))
        kept = [
            checkpoint.load(p / checkpoint.FILE_NAME) for p in (folder, folder.parent / "whole")
        ]
        assert_same(kept[0].tensors, kept[1].tensors)  # momentum and average too
        steps = [e["step"] for e in runlog.read(folder / runlog.FILE_NAME)]
        assert steps == sorted(steps)


class StopAfter(MixedScale):
    """Asks to stop in the middle of a step."""

    def __init__(self, network: ScaleAdaptiveNetwork, stop: StopRequest, batches: int) -> None:
        super().__init__(network)
        self.stop = stop
        self.left = batches

    def run(self, batch: Batch, passes: Passes) -> Parts:
        self.left -= 1
        if self.left == 0:
            self.stop.requested = True
        return super().run(batch, passes)


def stoppable(task: Task, recipe: Recipe, group: Group, folder: Path, after: int) -> Trainer:
    folder.mkdir(parents=True)
    stop = StopRequest()
    objective = StopAfter(task.network, stop, after * recipe.accumulate)
    loader = run._loader(task, recipe, group, task.network.resolutions)
    normalise = run.Normaliser(task.preprocessing, group.device)
    return Trainer(objective, loader, normalise, recipe, group, folder, stop=stop)


def test_a_run_older_than_an_option_had_its_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = changed().model_dump(mode="json")
    del stored["train_slopes"]
    monkeypatch.setattr(run.checkpoint, "read_state", lambda _: {"recipe": stored})
    run.check_resumable(tmp_path, changed())
    with pytest.raises(CheckpointError, match="started with train_slopes = True, not False"):
        run.check_resumable(tmp_path, changed(train_slopes=False))


def test_a_finished_run_is_not_trained_again_and_another_is_not_overwritten(
    make_task: MakeTask, alone: Group, tmp_path: Path
) -> None:
    task, recipe = make_task(), changed(epochs=1)
    run.train(task, recipe, alone, tmp_path, quiet=True)
    before = weights(task.network)
    with pytest.raises(CheckpointError, match="--resume"):
        run.train(make_task(), recipe, alone, tmp_path, quiet=True)
    again = make_task()
    assert run.train(again, recipe, alone, tmp_path, resume=True, quiet=True)
    assert_same(before, weights(again.network))
    other = changed(epochs=1, learning_rate=0.1)
    with pytest.raises(CheckpointError, match=r"started with learning_rate = 0\.05, not 0\.1"):
        run.train(make_task(), other, alone, tmp_path, resume=True, quiet=True)
    other = changed(epochs=1, batch_size=3)
    with pytest.raises(CheckpointError, match="6 images per step"):
        run.train(make_task(), other, alone, tmp_path, resume=True, quiet=True)


def test_a_full_disk_does_not_stop_training(
    make_task: MakeTask,
    alone: Group,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    working = checkpoint.save
    calls = []

    def save(path: Path, kept: checkpoint.Checkpoint) -> None:
        calls.append(kept.state["position"])
        if len(calls) == 2:
            raise CheckpointError("No space left on device.")
        working(path, kept)

    monkeypatch.setattr(checkpoint, "save", save)
    recipe = changed(epochs=1, checkpoint_steps=2)
    assert run.train(make_task(), recipe, alone, tmp_path, quiet=True)
    assert [p["step"] for p in calls] == [2, 4, 6, 0]
    assert "The last good checkpoint stays" in caplog.text


def test_checkpoints_are_written_by_the_clock(
    make_task: MakeTask, alone: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = []
    monkeypatch.setattr(checkpoint, "save", lambda _, kept: saved.append(kept.state["position"]))
    task, recipe = make_task(), changed(epochs=1, checkpoint_minutes=1.0)
    now = [0.0]

    class Slow(MixedScale):
        def run(self, batch: Batch, passes: Passes) -> Parts:
            now[0] += 25.0
            return super().run(batch, passes)

    loader = run._loader(task, recipe, alone, task.network.resolutions)
    normalise = run.Normaliser(task.preprocessing, alone.device)
    trainer = Trainer(
        Slow(task.network), loader, normalise, recipe, alone, tmp_path, clock=lambda: now[0]
    )
    trainer.fit()
    assert saved == [{"epoch": 0, "step": 3}, {"epoch": 0, "step": 6}, {"epoch": 1, "step": 0}]


def test_a_loss_that_is_no_number_stops_with_advice(
    make_task: MakeTask, alone: Group, tmp_path: Path
) -> None:
    task = make_task()
    with torch.no_grad():
        task.network.meta_learner.weight.fill_(math.nan)  # type: ignore[operator]
    with pytest.raises(DivergedError, match="--learning-rate"):
        run.train(task, changed(epochs=1), alone, tmp_path, quiet=True)
    assert not (tmp_path / checkpoint.FILE_NAME).exists()


def test_a_finished_training_is_exported_even_if_its_curves_cannot_be_drawn(
    make_task: MakeTask,
    alone: Group,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def draw(_folder: Path) -> None:
        raise RuntimeError("no fonts")

    monkeypatch.setattr(run.curves, "draw", draw)
    bundle = tmp_path / "mine.safetensors"
    recipe = changed(epochs=1)
    assert run.train(make_task(), recipe, alone, tmp_path / "run", bundle=bundle, quiet=True)
    assert bundle.is_file()
    assert "not drawn (no fonts)" in caplog.text


def test_a_state_that_is_no_number_never_replaces_a_good_checkpoint(
    make_task: MakeTask, alone: Group, tmp_path: Path
) -> None:
    recipe = changed(epochs=1, checkpoint_steps=1)
    task = make_task()

    class Spoiled(MixedScale):
        steps = 0

        def run(self, batch: Batch, passes: Passes) -> Parts:
            self.steps += 1
            parts = super().run(batch, passes)
            if self.steps == 3:
                self.network.meta_learner.bias.grad[0] = math.nan  # type: ignore[index]
            return parts

    loader = run._loader(task, recipe, alone, task.network.resolutions)
    normalise = run.Normaliser(task.preprocessing, alone.device)
    trainer = Trainer(Spoiled(task.network), loader, normalise, recipe, alone, tmp_path)
    with pytest.raises(DivergedError, match="last checkpoint is from before"):
        trainer.fit()
    kept = checkpoint.load(trainer.path)
    assert kept.state["position"] == {"epoch": 0, "step": 2}
    assert all(bool(t.isfinite().all()) for t in kept.tensors.values())


def test_seeds_of_any_size_are_taken_and_small_ones_mean_what_they_did(
    make_task: MakeTask, alone: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []
    seed = torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda value: (seeds.append(value), seed(value))[1])
    task = make_task()
    for number, given in enumerate((5, 2**63 - 1)):
        seeds.clear()
        recipe = changed(epochs=1, seed=given, limit_images=6)
        assert run.train(task, recipe, alone, tmp_path / str(number), quiet=True)
        assert seeds[0] == (given << 40) % 2**63


@pytest.mark.parametrize(
    "fields",
    [
        {"precision": "bfloat16"},
        {"precision": "float16"},
        {"compile": True},
        {"channels_last": True},
        {"shared_batch_norm": True},
        {"beta": 0.0},
        {"resolutions": (64,), "meta_learner": "private"},
        {"meta_learner": "mlp8"},
        {"meta_learner": "private"},
    ],
)
def test_every_variant_runs_in_the_same_loop(
    make_task: MakeTask,
    alone: Group,
    tmp_path: Path,
    fields: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The graphs are captured as they are for a GPU; generating code for them would take minutes.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    recipe = changed(epochs=1, limit_images=12, **fields)
    task = make_task(
        resolutions=recipe.resolutions,
        kind=recipe.meta_learner,
        shared_batch_norm=recipe.shared_batch_norm,
    )
    before = weights(task.network)
    assert run.train(task, recipe, alone, tmp_path, quiet=True)
    after = weights(task.network)
    moved = [n for n, t in after.items() if not torch.equal(t, before[n])]
    assert set(moved) == set(after)  # every parameter and statistic


def test_the_bundle_has_recipe_classes_and_accuracy(
    data: Path, alone: Group, tmp_path: Path
) -> None:
    training, validation = index_training(data)
    fields = {"architecture": "shufflenet_v2_x0_5", "resolutions": (64, 32), "batch_size": 12}
    recipe = changed(epochs=1, **fields)
    task = run.from_scratch(recipe, training, validation)
    path = tmp_path / "bundles" / "mine.safetensors"
    assert run.train(task, recipe, alone, tmp_path / "run", bundle=path, quiet=True)
    bundle = load_bundle(path)
    assert bundle.manifest.name == "mine"
    assert bundle.manifest.classes == tuple(sorted(CLASSES))
    assert make_recipe(bundle.manifest.provenance["recipe"]) == recipe
    assert {(a.resolution, a.mode.value, a.n) for a in bundle.manifest.accuracy} == {
        (64, "proxy", 15),
        (32, "proxy", 15),
    }
    assert_same(weights(bundle.network), weights(task.network))

    again, further = run.from_bundle(path, data, lambda d: make_recipe(d, fields))
    assert further.resolutions == (64, 32)
    assert_same(weights(again.network), weights(task.network))
    assert all(p.requires_grad for p in again.network.parameters())
    for other in ({"architecture": "resnet18"}, {"crop_ratio": 0.5}, {"resolutions": (48, 32)}):
        with pytest.raises(RecipeError, match=f"has {next(iter(other))} ="):
            run.from_bundle(path, data, lambda d, other=other: make_recipe(d, other))
