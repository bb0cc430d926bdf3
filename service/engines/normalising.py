"""Normalising as the first step of a torch network."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from san_core.preprocessing import Preprocessing
from service.engines.base import Images


def as_tensor(images: Images) -> Tensor:
    """Images as a tensor.

    Torch wants memory that it could write to, which Pillow's is not, and no strides below zero,
    which a mirrored image has.
    """
    return torch.from_numpy(np.require(images, requirements=("C", "W")))


class Normalise:
    """Pixel values [n, T, T, 3] of any type to what a network computes with, [n, 3, T, T].

    Computed in float32 whatever the network computes in: half precision would round the scale.
    """

    def __init__(
        self, preprocessing: Preprocessing, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._scale = torch.from_numpy(preprocessing.scale).to(device)
        self._offset = torch.from_numpy(preprocessing.offset).to(device)
        self.dtype = dtype
        """What the network computes with."""

    def __call__(self, images: Tensor) -> Tensor:
        """Normalise in one pass."""
        normal = torch.empty(images.shape, dtype=self.dtype, device=images.device)
        torch.addcmul(self._offset, images, self._scale, out=normal)
        # A view: NHWC memory seen as NCHW is exactly channels_last.
        return normal.permute(0, 3, 1, 2)
