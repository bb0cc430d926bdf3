"""What a network's evaluation tells beyond accuracy: the paper's supplement as plain numbers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from san_core.network.private_batch_norm import AFFINE, STATISTICS
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork


def miss_and_hit(hits: Sequence[Tensor], read: Tensor) -> list[list[float]]:
    """Return the share of images that probe i missed and probe j hit, for all i and j."""
    n = max(1, int(read.sum()))
    return [[float((~miss & hit & read).sum()) / n for hit in hits] for miss in hits]


@torch.no_grad()
def batch_norm_means(network: ScaleAdaptiveNetwork) -> dict[str, dict[str, list[float]]]:
    """Return, per kind and trained resolution, every BN layer's mean over its channels.

    The supplement's visualisation of private batch norm: scale, shift, mean, variance.
    """
    sizes = [slot.channels for slot in network.norms]
    return {
        kind: {
            str(side): [
                float(part.mean())
                for part in torch.split(getattr(network.batch_norm(side), kind), sizes)
            ]
            for side in network.resolutions
        }
        for kind in AFFINE + STATISTICS
    }
