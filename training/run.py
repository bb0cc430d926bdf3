"""A whole training run: from a task and a recipe to a checkpointed run and a bundle."""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from san_core.bundle import Accuracy, Manifest
from san_core.bundle import load as load_bundle
from san_core.network.network_config import NetworkConfig
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from san_core.preprocessing import Preprocessing
from training.config import Recipe, dump_toml
from training.data.folder import ImageFolder, index_training
from training.data.loader import Normaliser, TrainingLoader
from training.data.order import Order
from training.data.samples import TrainingSamples
from training.errors import CheckpointError, RecipeError
from training.evaluation.probes import Measurement, Probe, measure
from training.export import accuracy_entry, export, provenance
from training.loop import checkpoint, curves
from training.loop.objective import MixedScale, Objective
from training.loop.progress import ProgressBar
from training.loop.trainer import Trainer
from training.runtime.distributed import Group
from training.runtime.interrupt import stop_on_signal

log = logging.getLogger(__name__)

# Fields that may differ when a run is resumed: they change how fast it goes, not what it computes.
MACHINE = frozenset(
    {"device", "workers", "validate_every", "checkpoint_minutes", "checkpoint_steps"}
    | {"max_unreadable", "compile", "batch_size", "accumulate"}
    | {"blend"}  # comes after training
)


@dataclass
class Task:
    """What is trained, and on what."""

    network: ScaleAdaptiveNetwork
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    training: ImageFolder
    validation: ImageFolder | None
    objective: Callable[[ScaleAdaptiveNetwork, Recipe], Objective]
    loader: Callable[[Recipe, Group], TrainingLoader] | None = None
    """Makes the training batches; None is the paper's crops at every resolution."""
    finish: Callable[[ScaleAdaptiveNetwork, Recipe, Group], dict[str, Any]] | None = None
    """Called with the trained network before it is exported; returns what provenance should say."""
    teacher_labels: bool = False
    """Whether the validation labels are a teacher's: agreement is then no accuracy to publish."""
    stored_as: torch.dtype = torch.float32
    """How the bundle stores its kernels."""
    told: dict[str, Any] = field(default_factory=dict)
    """What else the bundle's provenance should say, e.g. licence and data."""


def mixed_scale(network: ScaleAdaptiveNetwork, recipe: Recipe) -> Objective:
    """Make the paper's objective, or an ablation of it, as the recipe says."""
    return MixedScale(
        network,
        alpha=recipe.alpha,
        beta=recipe.beta,
        label_smoothing=recipe.label_smoothing,
        compiled=recipe.compile,
    )


def new_network(recipe: Recipe, num_classes: int) -> ScaleAdaptiveNetwork:
    """Draw a fresh network from the recipe's seed."""
    torch.manual_seed(recipe.seed)
    config = NetworkConfig(
        architecture=recipe.architecture,
        resolutions=recipe.resolutions,
        num_classes=num_classes,
        meta_learner=recipe.meta_learner,
        generate_stem=recipe.generate_stem,
        shared_batch_norm=recipe.shared_batch_norm,
        knots=recipe.knots,
    )
    return ScaleAdaptiveNetwork(config, initialisation=recipe.initialisation)


def from_scratch(recipe: Recipe, training: ImageFolder, validation: ImageFolder | None) -> Task:
    """Make the task of training a fresh network on labelled images."""
    return Task(
        network=new_network(recipe, len(training.classes)),
        classes=training.classes,
        preprocessing=Preprocessing(
            crop_ratio=recipe.crop_ratio, interpolation=recipe.interpolation
        ),
        training=training.limited(recipe.limit_images),
        validation=validation,
        objective=mixed_scale,
    )


def from_bundle(
    source: Path, data: Path, layered: Callable[[dict[str, Any]], Recipe]
) -> tuple[Task, Recipe]:
    """Make the task of training a bundle's network further on labelled images."""
    start = load_bundle(source)
    recipe = layered(recipe_fields(start.manifest))
    check_as_bundle(recipe, start.manifest)
    training, validation = index_training(data, start.manifest.classes)
    task = from_scratch(recipe, training, validation)
    task.network = trainable(start.network)
    task.preprocessing = start.manifest.preprocessing
    task.told = {"started_from": start.manifest.name}
    return task, recipe


def recipe_fields(manifest: Manifest) -> dict[str, Any]:
    """Return the recipe's fields that a bundle decides."""
    config = manifest.network
    return {
        "architecture": config.architecture,
        "resolutions": config.resolutions,
        "meta_learner": config.meta_learner,
        "knots": config.knots,
        "generate_stem": config.generate_stem,
        "shared_batch_norm": config.shared_batch_norm,
        "crop_ratio": manifest.preprocessing.crop_ratio,
        "interpolation": manifest.preprocessing.interpolation,
    }


def check_as_bundle(recipe: Recipe, manifest: Manifest) -> None:
    """Refuse a recipe that describes another network than the bundle it starts from."""
    for name, decided in recipe_fields(manifest).items():
        asked = getattr(recipe, name)
        if asked != decided:
            raise RecipeError(
                f"The bundle {manifest.name} has {name} = {decided}, and training does not change "
                f"that to {asked}. Leave it out of recipe and options, or make another bundle."
            )


def trainable(network: ScaleAdaptiveNetwork) -> ScaleAdaptiveNetwork:
    """Give a loaded network storage of its own (a bundle's is the mapped file) and gradients.

    Calibrated statistics and temperatures are dropped: they are those of the network as it was.
    """
    network.temperatures = ()
    network.calibrated = nn.ModuleDict()
    own = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    network.load_state_dict(own, assign=True)
    return network.requires_grad_(True)


def check_resumable(folder: Path, recipe: Recipe) -> None:
    """Refuse to continue a run with a recipe that computes something else."""
    # Through the recipe, so that an option younger than the run has its default.
    stored = Recipe(**checkpoint.read_state(folder / checkpoint.FILE_NAME)["recipe"])
    then, now = stored.model_dump(mode="json"), recipe.model_dump(mode="json")
    changed = [k for k in now if k not in MACHINE and now[k] != then[k]]
    if changed:
        name = changed[0]
        raise CheckpointError(
            f"The run in {folder} was started with {name} = {then[name]}, not {now[name]}. "
            "Leave that option out to continue it, or choose another --output."
        )


def trained_scores(task: Task, images: ImageFolder, recipe: Recipe, group: Group) -> Measurement:
    """Measure every trained resolution on labelled images."""
    return measure(
        task.network,
        [Probe(side, side) for side in task.network.resolutions],
        images,
        task.preprocessing,
        group,
        batch_size=recipe.batch_size,
        workers=recipe.workers,
        max_unreadable=recipe.max_unreadable,
    )


def train(
    task: Task,
    recipe: Recipe,
    group: Group,
    folder: Path,
    *,
    resume: bool = False,
    bundle: Path | None = None,
    quiet: bool = False,
) -> bool:
    """Train to the end and export; return False if stopped before, ready to be resumed."""
    exists = (folder / checkpoint.FILE_NAME).is_file()
    if exists and not resume:
        raise CheckpointError(
            f"{folder} already holds a run. Continue it with --resume or choose another --output."
        )
    if exists:
        check_resumable(folder, recipe)
    folder.mkdir(parents=True, exist_ok=True)
    if group.is_main:
        (folder / "recipe.toml").write_text(dump_toml(recipe.model_dump(mode="json")))
    group.barrier()
    task.network.to(group.device)
    objective = task.objective(task.network, recipe)
    measured: dict[int, Accuracy] = {}

    def validate() -> dict[int, float]:
        assert task.validation is not None
        found = trained_scores(task, task.validation, recipe, group)
        for probe, score in found.scores.items():
            measured[probe.test] = accuracy_entry(probe.test, score, task.validation.name)
        return {side: entry.top1 for side, entry in measured.items()}

    bar = ProgressBar(sys.stderr if group.is_main and not quiet else None)
    with stop_on_signal() as stop:
        trainer = Trainer(
            objective,
            task.loader(recipe, group)
            if task.loader
            else _loader(task, recipe, group, objective.resolutions),
            Normaliser(task.preprocessing, group.device, channels_last=recipe.channels_last),
            recipe,
            group,
            folder,
            validate=validate if task.validation else None,
            judged="agreement with the teacher" if task.teacher_labels else "validation top-1",
            bar=bar,
            stop=stop,
        )
        if exists:
            trainer.resume()
            bar.say(f"Resuming {folder} at step {trainer.global_step}.")
        if not trainer.fit():
            bar.say(f"Stopped at step {trainer.global_step}; continue with --resume.")
            return False
    with trainer.averaged_weights():
        if bundle and task.finish:
            task.told |= task.finish(task.network, recipe, group)
            measured.clear()  # it was of the network before
        if bundle and task.validation and not task.teacher_labels and not measured:
            validate()
        if bundle and group.is_main:
            export(
                bundle,
                task.network,
                classes=task.classes,
                preprocessing=task.preprocessing,
                told=provenance(recipe, data=str(task.training.root), **task.told),
                accuracy=() if task.teacher_labels else tuple(measured.values()),
                dtype=task.stored_as,
            )
            bar.say(
                f"Wrote {bundle}. Add int8 and measured accuracy: "
                f"san prepare {bundle} --data LABELLED -o ready.safetensors"
            )
    if group.is_main:
        _draw_curves(folder)
    group.barrier()
    return True


def _draw_curves(folder: Path) -> None:
    try:
        curves.draw(folder)
    except Exception as error:  # a picture, of whatever a drawing library raises, costs no training
        log.warning("The curves were not drawn (%s); try again: san report curves RUN.", error)


def loader_of(
    samples: TrainingSamples, recipe: Recipe, group: Group, kind: type[Order] = Order
) -> TrainingLoader:
    """Return what loads the samples in the recipe's batches, shuffled by its seed."""
    order = kind(
        len(samples.folder),
        recipe.batch_size,
        recipe.accumulate,
        group.size,
        group.rank,
        recipe.seed,
    )
    if group.is_main and order.images_per_step != recipe.batch_size:
        log.info("One step takes %d images.", order.images_per_step)
    return TrainingLoader(
        samples,
        order,
        device=group.device,
        workers=recipe.workers,
        max_unreadable=recipe.max_unreadable,
    )


def _loader(
    task: Task, recipe: Recipe, group: Group, resolutions: tuple[int, ...]
) -> TrainingLoader:
    samples = TrainingSamples(
        task.training,
        resolutions,
        seed=recipe.seed,
        area=recipe.crop_area,
        flip=recipe.flip,
        interpolation=task.preprocessing.interpolation,
    )
    return loader_of(samples, recipe, group)
