"""What a main network costs: multiply-adds, parameters, bytes; and what the meta learners weigh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from san_core.errors import ArchitectureError
from san_core.resolution import check_resolution

if TYPE_CHECKING:  # counting needs torch, what was counted does not
    from torch import Tensor, nn

    from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork


@dataclass(frozen=True)
class Cost:
    """The cost of one image through a main network."""

    macs: int
    """Multiply-adds of convolutions and linear layers (what the paper's tables call FLOPs)."""
    parameters: int
    weight_bytes: int
    """Bytes of the main network's weights in float32."""


def macs(module: nn.Module, resolution: int) -> int:
    """Count the multiply-adds of a stock CNN for one image, on the meta device: nothing is run."""
    import torch
    from torch import nn
    from torch.func import functional_call

    total = 0

    def count(layer: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal total
        if isinstance(layer, nn.Conv2d):
            total += output.numel() * layer.weight[0].numel()
        elif isinstance(layer, nn.Linear):
            total += output.numel() * layer.in_features

    layers = [m for m in module.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    handles = [layer.register_forward_hook(count) for layer in layers]
    was_training = module.training
    try:
        tensors = {k: v.to("meta") for k, v in module.state_dict().items()}
        images = torch.empty(1, 3, resolution, resolution, device="meta")
        functional_call(module.eval(), tensors, (images,))
    finally:
        module.train(was_training)
        for handle in handles:
            handle.remove()
    return total


def cost(network: ScaleAdaptiveNetwork, resolution: int) -> Cost:
    """Return what one image costs at `resolution`."""
    check_resolution(resolution)
    parameters = sum(p.numel() for p in network.skeleton.parameters())
    buffers = 2 * sum(slot.channels for slot in network.norms)
    return Cost(macs(network.skeleton, resolution), parameters, 4 * (parameters + buffers))


def ratios(network: ScaleAdaptiveNetwork) -> dict[str, float]:
    """Return mean|W| / mean|b| per convolution (supplement, "Ratios of Weights to Biases")."""
    from san_core.network.meta_learner import LinearMetaLearner

    learner = network.meta_learner
    if not isinstance(learner, LinearMetaLearner):
        raise ArchitectureError("Only linear meta learners have a ratio of W to b.")
    sizes = [slot.numel for slot in network.kernels]
    weight, bias = learner.weight.detach(), learner.bias.detach()
    bias = bias - learner.origin * weight  # b of the paper's form, origin 0
    pairs = zip(
        network.kernels, weight.split_with_sizes(sizes), bias.split_with_sizes(sizes), strict=True
    )
    return {slot.name: float(w.abs().mean() / b.abs().mean()) for slot, w, b in pairs}
