"""Setting the confidence of each resolution before a lifted network is distilled.

A network used away from its native resolution pools activations of another size: EfficientNet-Lite0
at 96 pixels has features four times as large as at 224, and is far too sure of itself. That error
swamps all others in KL, and training that has to undo it first does harm on the way.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from tqdm import tqdm

from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from san_core.preprocessing import Preprocessing
from training.data.folder import ImageFolder
from training.data.loader import Normaliser, centre_batches
from training.lift.native import native_resolution, pupils
from training.runtime.distributed import Group


def _divergence(logits: Tensor, target: Tensor) -> float:
    student = F.log_softmax(logits, dim=1)
    return float(F.kl_div(student, target, reduction="batchmean", log_target=True))


def _smallest(cost: Callable[[float], float], low: float, high: float, evaluations: int) -> float:
    """Find where a function with one valley is smallest, by golden section."""
    ratio = (math.sqrt(5) - 1) / 2
    inner = [high - ratio * (high - low), low + ratio * (high - low)]
    costs = [cost(x) for x in inner]
    for _ in range(evaluations - 2):
        if costs[0] <= costs[1]:
            high = inner[1]
            inner, costs = [high - ratio * (high - low), inner[0]], [0.0, costs[0]]
            costs[0] = cost(inner[0])
        else:
            low = inner[0]
            inner, costs = [inner[1], low + ratio * (high - low)], [costs[1], 0.0]
            costs[1] = cost(inner[1])
    return inner[0] if costs[0] <= costs[1] else inner[1]


@torch.no_grad()
def temper(
    network: ScaleAdaptiveNetwork,
    folder: ImageFolder,
    preprocessing: Preprocessing,
    *,
    evaluations: int = 8,
    quiet: bool = True,
) -> dict[int, float]:
    """Scale the last private batch norm of each resolution so that its confidence is right.

    One number per resolution, found on a few images without labels; guesses stay the same but for
    the head's bias.
    """
    native = native_resolution(network)
    channels = network.norms[-1].channels
    group = Group(0, 1, torch.device("cpu"))
    normalise = Normaliser(preprocessing, group.device)
    batches = centre_batches(
        folder, network.resolutions, preprocessing, group, batch_size=len(folder), workers=0
    )
    images = {side: normalise(pixels) for side, pixels in next(iter(batches)).pixels.items()}
    network.eval()
    target = F.log_softmax(network(images[native], native), dim=1)
    factors = {}
    runs = len(pupils(network)) * (evaluations + 3)
    bar = tqdm(total=runs, desc="scores", unit="run", leave=False, disable=quiet or None)
    for resolution in pupils(network):
        norm = network.batch_norm(resolution)
        parts = [norm.weight[-channels:], norm.bias[-channels:]]
        start = [part.clone() for part in parts]

        def cost(factor: float) -> float:
            for part, own in zip(parts, start, strict=True):  # noqa: B023 (called at once)
                part.copy_(factor * own)
            bar.update()
            return _divergence(network(images[resolution], resolution), target)  # noqa: B023

        unchanged = cost(1.0)
        found = _smallest(cost, 0.1, 1.5, evaluations)
        factors[resolution] = found if cost(found) < unchanged else 1.0
        cost(factors[resolution])
    bar.close()
    return factors
