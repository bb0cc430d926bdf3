"""How much of what was learnt to keep, decided on images that were held out.

A few thousand images teach W more about themselves than about the world. Going only part of the way
from the lifted network to the trained one keeps most of the gain at the smallest resolution and
costs less at the largest (Wortsman et al., "Robust fine-tuning of zero-shot models", 2022, do the
same between a zero-shot and a fine-tuned network).
"""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from san_core.scale_adaptive_network import ScaleAdaptiveNetwork

SHARES = (1.0, 0.875, 0.75, 0.625, 0.5)
SLOPE_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)

Scores = Mapping[int, float]
"""Agreement with the teacher per resolution, 0 to 1."""


@torch.no_grad()
def blend(
    network: ScaleAdaptiveNetwork,
    start: Mapping[str, Tensor],
    end: Mapping[str, Tensor],
    share: float,
) -> None:
    """Put the network `share` of the way from `start` to `end`."""
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point() and not torch.equal(start[name], end[name]):
            torch.lerp(start[name], end[name], share, out=tensor)


def _mean(scores: Scores) -> float:
    return math.fsum(scores.values()) / len(scores)


def keep_best(
    network: ScaleAdaptiveNetwork,
    start: Mapping[str, Tensor],
    score: Callable[[], Scores],
    shares: Sequence[float] = SHARES,
) -> dict[float, Scores]:
    """Leave the network at the share with the highest mean score, the larger one of equals."""
    end = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
    scores: dict[float, Scores] = {}
    for share in sorted(shares, reverse=True):
        blend(network, start, end, share)
        scores[share] = score()
    blend(network, start, end, max(scores, key=lambda share: (_mean(scores[share]), share)))
    return scores


@torch.no_grad()
def restrain(
    network: ScaleAdaptiveNetwork,
    floor: Scores,
    score: Callable[[], Scores],
    *,
    tolerance: float = 0.01,
    shares: Sequence[float] = SLOPE_SHARES,
) -> dict[float, Scores]:
    """Shorten W until no resolution scores lower than `floor` by more than the tolerance.

    W moves all resolutions in proportion to their distance from the native one, so what the
    smallest gains from may be too much for the one next to the native. Failing all shares, W stays.
    """
    slopes = network.get_parameter("meta_learner.weight")
    own = slopes.detach().clone()
    scores: dict[float, Scores] = {}
    for share in sorted(shares, reverse=True):
        slopes.copy_(share * own)
        scores[share] = score()
        if all(scores[share][r] >= floor[r] - tolerance for r in floor):
            return scores
    slopes.copy_(own)
    return scores
