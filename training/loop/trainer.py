"""The training loop: the same for mixed-scale training, baselines, ablations and distillation."""

import contextlib
import logging
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from training.config import Recipe
from training.data.loader import Normaliser, TrainingLoader
from training.data.samples import RawBatch
from training.errors import CheckpointError, DivergedError
from training.loop import checkpoint, runlog
from training.loop.checkpoint import Checkpoint
from training.loop.ema import WeightAverage
from training.loop.gradients import FlatGradients
from training.loop.meter import Meter
from training.loop.objective import Batch, Objective, Passes
from training.loop.optimizer import make_optimizer
from training.loop.progress import ProgressBar, Snapshot
from training.loop.runlog import RunLog
from training.loop.schedule import HalfCosine
from training.runtime.distributed import Group
from training.runtime.interrupt import StopRequest

_FLUSH_EVERY = 10
"""Steps between reports: reading a loss waits for the device."""
_SEED_BITS = 2**63 - 1  # what torch takes of a seed
_AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}

log = logging.getLogger(__name__)

Validate = Callable[[], dict[int, float]]
"""Measures the top-1 accuracy by resolution; called in every process."""


@dataclass
class Position:
    """Where a run stands: the next step to take."""

    epoch: int = 0
    step: int = 0
    """Within the epoch."""


class Trainer:
    """Trains what an objective says, on what a loader yields, and never loses work."""

    def __init__(
        self,
        objective: Objective,
        loader: TrainingLoader,
        normalise: Normaliser,
        recipe: Recipe,
        group: Group,
        folder: Path,
        *,
        validate: Validate | None = None,
        judged: str = "validation top-1",
        bar: ProgressBar | None = None,
        stop: StopRequest | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.objective = objective
        self.network = objective.network
        self.loader = loader
        self.recipe = recipe
        self.group = group
        self.path = folder / checkpoint.FILE_NAME
        self.position = Position()
        self.optimizer = self._make_optimizer()
        steps = loader.order.steps_per_epoch
        self.schedule = HalfCosine(
            recipe.learning_rate,
            recipe.epochs * steps,
            round(recipe.warmup_epochs * steps),
            recipe.final_learning_rate,
        )
        self.average = WeightAverage(self.network, recipe.ema_decay) if recipe.ema_decay else None
        self._folder = folder
        self._normalise = normalise
        self._validate = validate
        self._judged = judged
        self._bar = bar or ProgressBar(None)
        self._stop = StopRequest() if stop is None else stop
        self._clock = clock
        self._scaler = torch.amp.GradScaler(
            group.device.type, enabled=recipe.precision == "float16"
        )
        self._meter = Meter()

    def _make_optimizer(self) -> torch.optim.Optimizer:
        named = list(self.objective.trained_parameters())
        self._names: dict[torch.Tensor, str] = {parameter: name for name, parameter in named}
        for tensor in self.network.state_dict().values():
            self.group.broadcast(tensor)
        statistics = [b for b in self.network.buffers() if b.is_floating_point()]
        self.gradients = FlatGradients([p for _, p in named], statistics)
        return make_optimizer(named, self.recipe)

    @property
    def global_step(self) -> int:
        """Optimizer steps taken since the run began."""
        return self.position.epoch * self.loader.order.steps_per_epoch + self.position.step

    @property
    def finished(self) -> bool:
        """Whether every epoch is done."""
        return self.position.epoch >= self.recipe.epochs

    # Saving and resuming.

    def save(self) -> None:
        """Write the checkpoint; a failure leaves the last good one and raises CheckpointError.

        A state that is no number is never written: that would leave nothing to go back to.
        """
        tensors = checkpoint.module_tensors(self.network, "network/")
        tensors |= checkpoint.optimizer_tensors(self.optimizer, self._names)
        if self.average:
            tensors |= {f"average/{k}": v for k, v in self.average.tensors.items()}
        # In every process: all hold the same numbers, and must end together or they would wait.
        for name, tensor in tensors.items():
            if not bool(torch.isfinite(tensor).all()):
                raise self._diverged(f"{name} holds a number that is not finite")
        if not self.group.is_main:
            return
        state = {
            "position": asdict(self.position),
            "images_per_step": self.loader.order.images_per_step,
            "images": self.loader.order.images,
            "scaler": self._scaler.state_dict(),
            "recipe": self.recipe.model_dump(mode="json"),
        }
        checkpoint.save(self.path, Checkpoint(tensors, state))

    def _diverged(self, what: str) -> DivergedError:
        return DivergedError(
            f"{what} at step {self.global_step}. Lower --learning-rate, add --warmup-epochs or set "
            "--clip-norm; the last checkpoint is from before."
        )

    def _try_to_save(self) -> None:
        try:
            self.save()
        except CheckpointError as error:
            log.warning("%s The last good checkpoint stays; training goes on.", error)

    def resume(self) -> None:
        """Continue from the checkpoint, exactly."""
        kept = checkpoint.load(self.path)
        self._check_same_steps(kept.state)
        checkpoint.restore_module(self.network, kept.under("network/"))
        checkpoint.restore_optimizer(self.optimizer, self._names, kept.under("optimizer/"))
        if self.average:
            self.average.restore(kept.under("average/"))
        if kept.state["scaler"]:
            self._scaler.load_state_dict(kept.state["scaler"])
        self.position = Position(**kept.state["position"])
        if self.group.is_main:
            runlog.cut(self._folder / runlog.FILE_NAME, self.global_step)

    def _check_same_steps(self, state: dict[str, Any]) -> None:
        order = self.loader.order
        for name, now in (("images_per_step", order.images_per_step), ("images", order.images)):
            if state[name] != now:
                raise CheckpointError(
                    f"The run was started with {state[name]} {name.replace('_', ' ')} and would "
                    f"continue with {now}. Use the same data, batch size and number of processes."
                )

    # The loop.

    def fit(self) -> bool:
        """Train to the end; return False if asked to stop before, with the checkpoint written."""
        events = RunLog(self._folder if self.group.is_main else None)
        try:
            while not self.finished:
                if not self._run_epoch(events):
                    return False
            return True
        finally:
            self._bar.close()
            events.close()

    def _run_epoch(self, events: RunLog) -> bool:
        self.objective.train()
        began = saved = self._clock()
        first_step, self.loader.wait_seconds = self.position.step, 0.0
        epoch, steps = self.position.epoch, self.loader.order.steps_per_epoch
        size = self.loader.order.images_per_step
        self._bar.start(self.global_step * size, self.schedule.total_steps * size)
        micro: list[RawBatch] = []
        for raw in self.loader.epoch(epoch, first_step):
            micro.append(raw)
            if len(micro) < self.recipe.accumulate:
                continue
            rate, stop = self._step(micro)
            micro = []
            self.position.step += 1
            taken = self.position.step - first_step
            self._bar.advance(size)
            if taken % _FLUSH_EVERY == 0 or self.position.step == steps:
                self._report(events, rate, taken, self._clock() - began)
            if stop:
                self.save()
                return False
            every = self.recipe.checkpoint_steps
            if self._clock() - saved >= 60 * self.recipe.checkpoint_minutes or (
                every and self.position.step % every == 0
            ):
                self._try_to_save()
                saved = self._clock()
        spent = self._clock() - began
        self.position = Position(epoch + 1, 0)
        self._end_epoch(events, spent, min(1.0, self.loader.wait_seconds / max(spent, 1e-9)))
        return True

    def _end_epoch(self, events: RunLog, spent: float, wait_share: float) -> None:
        epoch, every = self.position.epoch, self.recipe.validate_every
        accuracy = None
        if self._validate and (self.finished or (every and epoch % every == 0)):
            with self.averaged_weights():
                accuracy = self._validate()
            shown = "  ".join(f"{side}: {top1:.1%}" for side, top1 in accuracy.items())
            self._bar.say(f"epoch {epoch}/{self.recipe.epochs}: {self._judged} {shown}")
        events.write(
            "epoch",
            self.global_step,
            epoch=epoch,
            seconds=round(spent, 3),
            data_wait=round(wait_share, 4),
            workers=self.loader.workers,
            unreadable=len(self.loader.unreadable.files),
            **({"validation": accuracy} if accuracy is not None else {}),
        )
        if self.finished:
            self.save()
        else:
            self._try_to_save()
            self.loader.adapt(wait_share)

    def averaged_weights(self) -> AbstractContextManager[None]:
        """Let the network have its averaged weights for a while, if the recipe keeps any."""
        return self.average.applied(self.network) if self.average else contextlib.nullcontext()

    def _step(self, micro: list[RawBatch]) -> tuple[float, bool]:
        """Take one optimizer step; return its learning rate and whether to stop after it."""
        step = self.global_step
        # Dropout's randomness is a function of the step too, which makes a resume exact.
        torch.manual_seed((self.recipe.seed << 40) + step * 4096 + self.group.rank & _SEED_BITS)
        rate = self.schedule(step)
        for settings in self.optimizer.param_groups:
            settings["lr"] = rate
        self.gradients.zero()
        share = 1.0 / len(micro)
        passes = Passes(
            lambda loss: torch.autograd.backward(self._scaler.scale(loss * share)), self._autocast
        )
        for raw in micro:
            labels = raw.labels.to(self.group.device) if self.loader.labelled else None
            images = {side: self._normalise(pixels) for side, pixels in raw.pixels.items()}
            self._meter.add(self.objective.run(Batch(images, labels), passes), len(raw.indices))
        stop = self.gradients.average(self.group, stop=self._stop.requested)
        self._scaler.unscale_(self.optimizer)
        if self.recipe.clip_norm:
            self.gradients.clip(self.recipe.clip_norm)
        self._scaler.step(self.optimizer)
        self._scaler.update()
        if self.average:
            self.average.update(self.network, step)
        return rate, stop

    def _autocast(self) -> AbstractContextManager[object]:
        if self.recipe.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.group.device.type, dtype=_AUTOCAST[self.recipe.precision])

    def _report(self, events: RunLog, rate: float, taken: int, spent: float) -> None:
        now = self._meter.flush()
        if not math.isfinite(now.loss):
            raise self._diverged(f"The loss is {now.loss}")
        order, total = self.loader.order, self.schedule.total_steps
        per_second = taken * order.images_per_step / max(spent, 1e-9)
        wait_share = min(1.0, self.loader.wait_seconds / max(spent, 1e-9))
        self._bar.show(
            Snapshot(
                epoch=self.position.epoch,
                epochs=self.recipe.epochs,
                step=self.global_step,
                steps=total,
                images_per_second=per_second,
                seconds_left=(total - self.global_step) * order.images_per_step / per_second,
                loss=now.loss,
                cross_entropy=now.total("cross_entropy"),
                distillation=now.total("distillation"),
                wait_share=wait_share,
                accuracy=now.accuracy,
            )
        )
        events.write(
            "step",
            self.global_step,
            epoch=self.position.epoch,
            learning_rate=rate,
            images_per_second=round(per_second, 2),
            data_wait=round(wait_share, 4),
            loss=now.loss,
            losses=now.losses,
            accuracy=now.accuracy,
        )
