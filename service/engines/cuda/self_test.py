"""Whether a network computes in its own precision what float32 computes."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TOLERANCE = 0.02
"""Largest difference of a logit, over the largest logit: half precision has 11 bits, but layers
add up."""
_EACH = 4
"""Images of a kind: every build waits for them. Chosen."""


def sample_images(side: int) -> NDArray[np.uint8]:
    """Images [8, T, T, 3]: half of them noise, half of them as smooth as a photograph."""
    random = np.random.default_rng(side)
    noise = random.integers(0, 256, (_EACH, side, side, 3), np.uint8)
    coarse = random.integers(0, 256, (_EACH, side // 16 + 1, side // 16 + 1, 3), np.uint8)
    smooth = coarse.repeat(16, axis=1).repeat(16, axis=2)[:, :side, :side]
    return np.concatenate([noise, smooth])


def is_finite(logits: Tensor) -> bool:
    """Whether every one of them is a number."""
    return bool(torch.isfinite(logits).all())


def disagreement(found: Tensor, expected: Tensor) -> float:
    """The largest difference over the largest logit; infinite if something is not a number."""
    apart = (found.float() - expected.float()).abs().max() / expected.abs().max()
    return float(torch.nan_to_num(apart, nan=torch.inf))
