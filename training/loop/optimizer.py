"""The optimizer that a recipe asks for."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from training.config import Recipe


def _is_kernel(name: str, parameter: nn.Parameter) -> bool:
    """Tell weights of convolutions and heads from batch norm and biases.

    A meta learner's b is flat and named bias, but is half of a kernel.
    """
    return name.startswith("meta_learner.") or parameter.dim() > 1


def make_optimizer(
    named: Sequence[tuple[str, nn.Parameter]], recipe: Recipe
) -> torch.optim.Optimizer:
    """Make SGD or AdamW over the parameters, in the fused implementation."""
    groups: list[dict[str, Any]] = [{"params": [p for _, p in named]}]
    if not recipe.decay_norms:
        groups = [
            {"params": [p for n, p in named if _is_kernel(n, p)]},
            {"params": [p for n, p in named if not _is_kernel(n, p)], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(
            groups, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
        )
    return torch.optim.SGD(
        groups,
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
        fused=True,
    )
