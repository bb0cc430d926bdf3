"""How much of what was learnt to keep, decided on images that were held out.

A few thousand images teach W more about themselves than about the world. Going only part of the way
from the lifted network to the trained one keeps most of the gain at the smallest resolution and
costs less at the largest (Wortsman et al., "Robust fine-tuning of zero-shot models", 2022, do the
same between a zero-shot and a fine-tuned network). Next to the native resolution the pretrained
network may still be the better one; it then takes the trained one's place.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from training.lift.native import native_resolution, pupils, set_native_from

SHARES = (1.0, 0.875, 0.75, 0.625, 0.5)
"""Of what was learnt, the rest being the start: steps of an eighth, down to a half. Chosen."""


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


def keep_best(
    network: ScaleAdaptiveNetwork,
    start: Mapping[str, Tensor],
    score: Callable[[], float],
    shares: Sequence[float] = SHARES,
) -> dict[float, float]:
    """Leave the network at the share with the highest score, the larger one of equals."""
    end = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
    scores = {}
    for share in sorted(shares, reverse=True):
        blend(network, start, end, share)
        scores[share] = score()
    blend(network, start, end, max(scores, key=lambda share: (scores[share], share)))
    return scores


def keep_native(
    network: ScaleAdaptiveNetwork, score: Callable[[], Mapping[int, float]]
) -> dict[int, tuple[float, float]]:
    """Going down from the native resolution, keep the pretrained network while it scores higher.

    Returns the trained and the pretrained network's score for each resolution that was compared:
    none if a larger resolution than the native one was taught, or if the meta learner has knots,
    the first of which says where the pretrained network begins.
    """
    compared: dict[int, tuple[float, float]] = {}
    if network.config.knots or native_resolution(network) < max(pupils(network)):
        return compared
    trained = score()
    for resolution in pupils(network):
        learnt = {n: t.clone() for n, t in network.batch_norm(resolution).state_dict().items()}
        before = network.config.native_from
        set_native_from(network, resolution)
        compared[resolution] = trained[resolution], score()[resolution]
        if compared[resolution][1] <= compared[resolution][0]:
            set_native_from(network, before)
            network.batch_norm(resolution).load_state_dict(learnt)
            break
    return compared
