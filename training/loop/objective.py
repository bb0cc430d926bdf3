"""What a step minimises: the seam between the trainer and the losses.

The trainer owns the loop, the optimizer and the checkpoints. An `Objective` owns the forward and
backward passes over one batch and says which parameters are trained. Mixed-scale training is one;
distilling a lifted network from its own largest resolution is another.
"""

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from training.loop.losses import cross_entropy, scale_distillation, soft_labels


@dataclass(frozen=True)
class Batch:
    """Normalised images of one batch at every resolution, on the device."""

    images: dict[int, Tensor]
    """By resolution S: float [n, 3, S, S], the same n crops in all of them."""
    labels: Tensor | None
    """[n], or None for unlabelled images."""


@dataclass(frozen=True)
class Passes:
    """How the trainer wants passes run: under which autocast, and its (scaled) backward."""

    backward: Callable[[Tensor], None]
    autocast: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext


@dataclass
class Parts:
    """What a batch cost, for the log; without graphs, not yet moved off the device."""

    loss: Tensor
    """The whole loss."""
    losses: dict[str, Tensor] = field(default_factory=dict)
    """Its parts by name, e.g. "cross_entropy/128" or "distillation/96"."""
    hits: dict[int, Tensor] = field(default_factory=dict)
    """By resolution, how many images were classified rightly; empty without labels."""


class Objective(Protocol):
    """Runs the passes over a batch."""

    network: ScaleAdaptiveNetwork
    """The network that is checkpointed, validated and exported."""
    resolutions: tuple[int, ...]
    """The resolutions that a batch must hold."""

    def train(self) -> None:
        """Put modules in training mode; called before an epoch and after a validation."""

    def trained_parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """Name the parameters that the optimizer updates."""

    def run(self, batch: Batch, passes: Passes) -> Parts:
        """Run forward and backward; gradients are added to those already there."""


class MixedScale:
    """Algorithm 1: alpha * sum CE + beta * sum KL(p(S_i) || p(S_j)), S_j < S_i.

    Largest resolution first, backward at once: its graph is gone before the next resolution's is
    made, and only its soft labels stay. As teachers are fixed, the sum of these gradients is the
    gradient of the joint loss.
    """

    def __init__(
        self,
        network: ScaleAdaptiveNetwork,
        *,
        alpha: float = 1.0,
        beta: float = 1.0,
        label_smoothing: float = 0.0,
        compiled: bool = False,
    ) -> None:
        self.network = network
        self.resolutions = network.resolutions
        self.alpha = alpha
        self.beta = beta
        self.label_smoothing = label_smoothing
        self._forward: Callable[[Tensor, int], Tensor] = (
            torch.compile(network, dynamic=False) if compiled else network
        )

    def train(self) -> None:
        """Put the network in training mode."""
        self.network.train()

    def trained_parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """Everything is trained: meta learner, private batch norms, shared head."""
        return self.network.named_parameters()

    def run(self, batch: Batch, passes: Passes) -> Parts:
        """Run all resolutions, largest first."""
        labels = batch.labels
        assert labels is not None, "mixed-scale training needs labels"
        parts = Parts(torch.zeros((), device=labels.device))
        teachers: list[Tensor] = []
        for resolution in sorted(self.resolutions, reverse=True):
            with passes.autocast():
                logits = self._forward(batch.images[resolution], resolution)
            entropy = cross_entropy(logits, labels, self.label_smoothing)
            loss = self.alpha * entropy
            parts.losses[f"cross_entropy/{resolution}"] = entropy.detach()
            if self.beta > 0 and teachers:
                divergence = scale_distillation(logits, teachers)
                loss = loss + self.beta * divergence
                parts.losses[f"distillation/{resolution}"] = divergence.detach()
            passes.backward(loss)
            parts.loss += loss.detach()
            parts.hits[resolution] = (logits.detach().argmax(1) == labels).sum()
            if self.beta > 0:
                teachers.append(soft_labels(logits))
        return parts
