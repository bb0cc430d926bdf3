"""Distilling a lifted network without labels: its native resolution teaches all others.

The teacher is the main network of the native resolution as it was lifted; it labels the crop that
the student sees smaller (or larger). Statistics of batch norm stay the pretrained ones, which makes
every BN an affine map that folds into its convolution even while training. What is trained is W and
the private scale and shift of the other resolutions, so the native operating point stays exactly
what it was, and so do those that the bundle says are native too.
"""

import itertools
import logging
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call

from san_core.bundle import load as load_bundle
from san_core.main_network.folding import FoldedArchitecture
from san_core.mode import Mode
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from san_core.preprocessing import Preprocessing
from training.config import Recipe, load_recipe
from training.data.folder import ImageFolder, index_for_classes, index_unlabelled, validation_root
from training.data.loader import Normaliser, TrainingLoader, centre_batches
from training.data.mixing import MixedSamples, ResolutionDraw, SteppedOrder
from training.distil.blend import keep_best, keep_native
from training.distil.depthwise import use_fast_depthwise
from training.distil.temper import temper
from training.errors import RecipeError
from training.export import stored_type
from training.lift.native import kept_from, native_resolution, pupils
from training.loop.objective import Batch, Objective, Parts, Passes
from training.run import (
    Task,
    check_as_bundle,
    loader_of,
    recipe_fields,
    trainable,
    trained_scores,
)
from training.runtime.distributed import Group

_TEMPERED_ON = 64
"""Images on which the confidence of each resolution is set before training."""
_FEW = 500
"""With fewer photographs a warning is given."""
_GRID = 16
"""Resolutions between the trained ones are multiples of this."""

log = logging.getLogger(__name__)


def between(resolutions: Iterable[int]) -> tuple[int, ...]:
    """Return the resolutions half way between neighbours, on a grid of 16 pixels."""
    ordered = sorted(resolutions)
    middles = (
        (low, round((low + high) / 2 / _GRID) * _GRID, high)
        for low, high in itertools.pairwise(ordered)
    )
    return tuple(middle for low, middle, high in middles if low < middle < high)


def resolution_draw(network: ScaleAdaptiveNetwork, recipe: Recipe) -> ResolutionDraw:
    """Say which resolutions batches hold: native, those asked for always, others by chance."""
    native = native_resolution(network)
    taught = pupils(network)
    if not taught:
        raise RecipeError("There is nothing to distil: the bundle has its native resolution only.")
    always = recipe.always or (min(taught),)
    unknown = [r for r in always if r not in taught]
    if unknown:
        raise RecipeError(f"--always {unknown[0]} is not one of the bundle's {taught} to distil.")
    kept = kept_from(network)
    middles = between(network.resolutions) if recipe.between else ()
    others = {*taught, *(r for r in middles if kept is None or r < kept)} - {*always}
    return ResolutionDraw((native, *always), tuple(sorted(others, reverse=True)), recipe.drawn)


class NativeTeacher:
    """KL(teacher || student) per resolution, and optionally the distance of the head's inputs.

    A resolution between the trained ones runs in mode `data_free`, so that both neighbours' batch
    norms learn from it.
    """

    def __init__(
        self,
        network: ScaleAdaptiveNetwork,
        draw: ResolutionDraw,
        *,
        temperature: float = 1.0,
        feature_weight: float = 0.0,
        train_slopes: bool = True,
        train_kernels: bool = False,
    ) -> None:
        self.network = network
        self.native = native_resolution(network)
        self.resolutions = tuple(sorted({*draw.always, *draw.others}, reverse=True))
        self.temperature = temperature
        self.feature_weight = feature_weight
        self._kernels = [
            name
            for name, wanted in (
                ("meta_learner.weight", train_slopes),
                ("meta_learner.bias", train_kernels),
            )
            if wanted
        ]
        self._folding = FoldedArchitecture(network.skeleton)
        self._module = self._folding.module
        use_fast_depthwise(self._module)
        self._features: list[Tensor] = []
        if feature_weight:
            head = _last_linear(self._module)
            head.register_forward_pre_hook(lambda _, inputs: self._features.append(inputs[0]))
        state = self._folding.fold(network.generate(self.native))
        # Clones: the teacher stays what was lifted even if b is trained.
        self._teacher = {name: tensor.clone() for name, tensor in state.items()}
        trained = {id(p) for _, p in self.trained_parameters()}
        for parameter in network.parameters():
            parameter.requires_grad_(id(parameter) in trained)

    def train(self) -> None:
        """Keep inference mode: the statistics of batch norm are the pretrained ones."""
        self.network.eval()

    def trained_parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """The private batch norms of all that are taught; W and b as asked."""
        private = tuple(f"batch_norms.{r}." for r in pupils(self.network))
        for name, parameter in self.network.named_parameters():
            if name in self._kernels or name.startswith(private):
                yield name, parameter

    def _run(self, tensors: dict[str, Tensor], images: Tensor) -> tuple[Tensor, Tensor | None]:
        self._features.clear()
        if images.device.type == "cpu":
            images, tensors = _channels_last(images), _all_channels_last(tensors)
        logits: Tensor = functional_call(self._module, tensors, (images,))
        return logits, self._features.pop() if self._features else None

    def run(self, batch: Batch, passes: Passes) -> Parts:
        """Let the teacher label the batch, then run every other resolution in it."""
        with torch.no_grad(), passes.autocast():
            taught, features = self._run(self._teacher, batch.images[self.native])
        target = F.log_softmax(taught.float() / self.temperature, dim=1)
        parts = Parts(torch.zeros((), device=target.device))
        for resolution in sorted(batch.images):
            if resolution == self.native:
                continue
            tensors = self.network.main_parameters(resolution, Mode.DATA_FREE)
            folded = self._folding.fold_differentiably(tensors)
            with passes.autocast():
                logits, own = self._run(folded, batch.images[resolution])
            student = F.log_softmax(logits.float() / self.temperature, dim=1)
            divergence = F.kl_div(student, target, reduction="batchmean", log_target=True)
            loss = self.temperature * divergence
            parts.losses[f"distillation/{resolution}"] = divergence.detach()
            if features is not None and own is not None:
                distance = (own.float() - features.float()).square().sum(1).mean()
                parts.losses[f"features/{resolution}"] = distance.detach()
                loss = loss + self.feature_weight * distance
            passes.backward(loss)
            parts.loss += loss.detach()
        return parts


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)


def _all_channels_last(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Lay kernels out as the CPU library likes them: small maps train nearly twice as fast."""
    return {name: _channels_last(t) if t.dim() == 4 else t for name, t in tensors.items()}


def _last_linear(module: nn.Module) -> nn.Module:
    linear = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise RecipeError("This architecture has no linear head; set --feature-weight 0.")
    return linear[-1]


@torch.inference_mode()
def teacher_labelled(
    network: ScaleAdaptiveNetwork,
    folder: ImageFolder,
    classes: tuple[str, ...],
    preprocessing: Preprocessing,
    *,
    workers: int = 0,
) -> ImageFolder:
    """Label images by what the native main network sees in their centre crops."""
    group, native = Group(0, 1, torch.device("cpu")), native_resolution(network)
    normalise = Normaliser(preprocessing, group.device)
    labels = [0] * len(folder)
    for raw in centre_batches(
        folder, (native,), preprocessing, group, batch_size=32, workers=workers
    ):
        guesses = network.eval()(normalise(raw.pixels[native]), native).argmax(1)
        for index, guess in zip(raw.indices, guesses.tolist(), strict=True):
            labels[index] = guess
    return ImageFolder(folder.root, classes, folder.files, tuple(labels))


def split(folder: ImageFolder, share: float) -> tuple[ImageFolder, ImageFolder]:
    """Hold out every n-th image, hence some of every kind."""
    count = round(share * len(folder))
    held = {int(i) for i in np.linspace(0, len(folder) - 1, count)} if count else set()

    def part(inside: bool) -> ImageFolder:
        chosen = [i for i in range(len(folder)) if (i in held) is inside]
        files = tuple(folder.files[i] for i in chosen)
        return ImageFolder(
            folder.root, folder.classes, files, tuple(folder.labels[i] for i in chosen)
        )

    return part(False), part(True)


def _loader(task: Task, draw: ResolutionDraw, recipe: Recipe, group: Group) -> TrainingLoader:
    samples = MixedSamples(
        task.training,
        draw,
        seed=recipe.seed,
        area=recipe.crop_area,
        flip=recipe.flip,
        interpolation=task.preprocessing.interpolation,
        mixup=recipe.mixup,
        cutmix=recipe.cutmix,
    )
    return loader_of(samples, recipe, group, SteppedOrder)


def _told(
    scores: Mapping[float, float], compared: Mapping[int, tuple[float, float]], images: int
) -> Iterator[str]:
    """What was kept of the training, for people; all of it by agreement on held-out photographs."""
    share = max(scores, key=lambda share: (scores[share], share))
    yield (
        f"Kept {share:.0%} of what was learnt: it agrees best with the teacher "
        f"({scores[share]:.1%} of {images} photographs that were held out)."
    )
    for resolution, (trained, before) in compared.items():
        kept = "the trained one" if trained >= before else "the pretrained one"
        yield f"{resolution} px: {before:.1%} before training, {trained:.1%} after; kept: {kept}."


def prepare(
    source: Path,
    images: Path,
    data: Path | None,
    layered: Callable[[dict[str, Any]], Recipe],
    *,
    quiet: bool = False,
) -> tuple[Task, Recipe]:
    """Make the task of distilling a lifted bundle.

    What was learnt is judged by the agreement with the teacher on images that are held out. With
    labelled `data` the accuracy on it is what one sees on the way.
    """
    start = load_bundle(source)
    manifest = start.manifest
    recipe = layered(load_recipe("distil") | recipe_fields(manifest))
    check_as_bundle(recipe, manifest)
    network = trainable(start.network)
    draw = resolution_draw(network, recipe)
    training, held = split(index_unlabelled(images).limited(recipe.limit_images), recipe.hold_out)
    log.info(
        "%s %s learns %s px from %d photographs; %d more are held out.",
        manifest.name,
        manifest.version,
        ", ".join(map(str, sorted(pupils(network), reverse=True))),
        len(training),
        len(held),
    )
    if len(training) < _FEW:
        log.warning(
            "%d photographs are few: some thousand teach small sizes much better.", len(training)
        )
    labelled: ImageFolder | None = None
    if data is not None:
        labelled = index_for_classes(validation_root(data), manifest.classes)
    if recipe.temper:
        log.info(
            "First, scores are scaled until every size is as sure as the network at its own size."
        )
        few = training.limited(_TEMPERED_ON)
        factors = temper(network, few, manifest.preprocessing, quiet=quiet)
        for resolution, factor in factors.items():
            log.debug("At %d the features are scaled by %.2f to begin with.", resolution, factor)
    judges: ImageFolder | None = None
    if len(held) and (recipe.blend or labelled is None):
        log.info("Then the network at its own size labels what is held out.")
        judges = teacher_labelled(network, held, manifest.classes, manifest.preprocessing)

    def objective(net: ScaleAdaptiveNetwork, chosen: Recipe) -> Objective:
        return NativeTeacher(
            net,
            draw,
            temperature=chosen.temperature,
            feature_weight=chosen.feature_weight,
            train_slopes=chosen.train_slopes,
            train_kernels=chosen.train_kernels,
        )

    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}

    def finish(net: ScaleAdaptiveNetwork, chosen: Recipe, group: Group) -> dict[str, Any]:
        start = {name: tensor.to(group.device) for name, tensor in before.items()}

        def agreement() -> dict[int, float]:
            assert judges is not None
            found = trained_scores(task, judges, chosen, group)
            return {probe.test: score.top1 for probe, score in found.scores.items()}

        scores = keep_best(net, start, lambda: statistics.fmean(agreement().values()))
        compared = keep_native(net, agreement)
        if group.is_main:
            for text in _told(scores, compared, len(judges or ())):
                log.info(text)
        return {
            "agreement_by_share_kept": {str(share): v for share, v in scores.items()},
            "agreement_trained_and_native": {str(side): v for side, v in compared.items()},
        }

    kept = ("licence", "lifted")
    task = Task(
        network=network,
        classes=manifest.classes,
        preprocessing=manifest.preprocessing,
        training=training,
        validation=labelled or judges,
        objective=objective,
        teacher_labels=labelled is None,
        stored_as=stored_type(source),
        finish=finish if recipe.blend and judges is not None else None,
        told={"started_from": manifest.name, "images": len(training)}
        | {k: manifest.provenance[k] for k in kept if k in manifest.provenance},
    )
    task.loader = lambda chosen, group: _loader(task, draw, chosen, group)
    return task, recipe
