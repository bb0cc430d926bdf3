"""Private batch norm: parameters and statistics of all BN layers, one set per trained resolution.

As with the kernels, all layers of one set lie in flat vectors of C numbers, C the channels of all
BN layers together; a `NormSlot` says which layer comes next and how many channels it has.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from san_core.network.network_config import NormSlot

AFFINE = ("weight", "bias")
STATISTICS = ("running_mean", "running_var")


class PrivateBatchNorm(nn.Module):
    """One set of scale, shift and statistics for all BN layers of a main network."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, slots: Sequence[NormSlot]) -> None:
        super().__init__()
        channels = sum(slot.channels for slot in slots)
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.register_buffer("num_batches_tracked", torch.zeros(len(slots), dtype=torch.long))

    def flat(self) -> dict[str, Tensor]:
        """Return scale, shift and both statistics as flat vectors [C]."""
        return {name: getattr(self, name) for name in AFFINE + STATISTICS}


def blended(lower: PrivateBatchNorm, upper: PrivateBatchNorm, share: float) -> dict[str, Tensor]:
    """Interpolate two sets (supplement, data-free ideal inference); share 0 is all `lower`."""
    if share == 0.0:
        return lower.flat()
    return {
        name: torch.lerp(getattr(lower, name), getattr(upper, name), share)
        for name in AFFINE + STATISTICS
    }


def by_layer(flat: dict[str, Tensor], slots: Sequence[NormSlot]) -> dict[str, Tensor]:
    """Cut flat vectors into the layers' tensors, named as in the stock state dict."""
    sizes = [slot.channels for slot in slots]
    tensors = {}
    for kind, vector in flat.items():
        for slot, part in zip(slots, vector.split_with_sizes(sizes), strict=True):
            tensors[f"{slot.name}.{kind}"] = part
    return tensors
