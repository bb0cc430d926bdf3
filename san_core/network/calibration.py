"""Calibration of BN statistics at a resolution (section 4.2, "BN Calibration for Ideal Inference").

The statistics are exact averages over all images given, not moving ones: sums and sums of squares
of every BN layer's input, while the network normalises by batch as in training.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from san_core.errors import SanError
from san_core.mode import Mode
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork


class _Moments:
    """Running sums per channel of what a BN layer is fed."""

    def __init__(self) -> None:
        self.count = 0
        self.total: Tensor | float = 0.0
        self.squares: Tensor | float = 0.0

    def __call__(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        values = inputs[0].detach().double()  # sums of squares cancel; float is too short
        self.count += values.numel() // values.shape[1]
        self.total = self.total + values.sum((0, 2, 3))
        self.squares = self.squares + values.square().sum((0, 2, 3))

    def mean_and_variance(self) -> tuple[Tensor, Tensor]:
        mean = torch.as_tensor(self.total / self.count)
        variance = torch.as_tensor(self.squares / self.count) - mean.square()
        unbiased = variance * (self.count / max(self.count - 1, 1))
        return mean.float(), unbiased.clamp_min(0.0).float()


@torch.no_grad()
def exact_statistics(
    network: ScaleAdaptiveNetwork, tensors: Mapping[str, Tensor], batches: Iterable[Tensor]
) -> dict[str, Tensor]:
    """Compute the exact BN statistics of any main network of the architecture.

    `tensors` are the main network's by their stock names and stay as they are; the result holds the
    flat `running_mean` and `running_var` of all BN layers.
    """
    skeleton = network.skeleton
    moments = {slot.name: _Moments() for slot in network.norms}
    handles = [
        skeleton.get_submodule(name).register_forward_pre_hook(moment)
        for name, moment in moments.items()
    ]
    # Batch statistics are used and the running ones written in training mode: write into copies.
    scratch = {name: t.clone() for name, t in tensors.items() if ".running_" in name}
    scratch |= {name: t.clone() for name, t in tensors.items() if name.endswith("_tracked")}
    was_training = skeleton.training
    skeleton.eval()
    norms = [skeleton.get_submodule(slot.name) for slot in network.norms]
    for norm in norms:
        norm.train()
    try:
        for images in batches:
            torch.func.functional_call(skeleton, {**tensors, **scratch}, (images,))
    finally:
        for handle in handles:
            handle.remove()
        skeleton.train(was_training)
    if not moments[network.norms[0].name].count:
        raise SanError("Calibration needs at least one batch of images.")
    pairs = [moments[slot.name].mean_and_variance() for slot in network.norms]
    return {
        "running_mean": torch.cat([mean for mean, _ in pairs]),
        "running_var": torch.cat([variance for _, variance in pairs]),
    }


@torch.no_grad()
def calibrate(
    network: ScaleAdaptiveNetwork, resolution: int, batches: Iterable[Tensor]
) -> dict[str, Tensor]:
    """Compute the exact BN statistics of the `ideal` main network at `resolution`.

    `batches` are images [n, 3, T, T], preprocessed. The result goes to
    `network.set_calibrated(resolution, …)`; the network itself is left as it was.
    """
    return exact_statistics(network, network.main_parameters(resolution, Mode.IDEAL), batches)
