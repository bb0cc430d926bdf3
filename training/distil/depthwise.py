"""Depthwise convolutions whose maps are smaller than their windows, trained fast on CPUs.

At small resolutions the last stages of mobile networks slide 5 x 5 windows over 3 x 3 maps, a case
for which the CPU library falls back to a reference loop for the kernel's gradient: a fifth of a
whole training step at 96 pixels. The gradient is a handful of sums, one per window position.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class _SmallMap(torch.autograd.Function):
    """Depthwise convolution of stride 1, its kernel's gradient summed window by window."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
        ctx.save_for_backward(images, weight)
        ctx.padding = padding
        return F.conv2d(images, weight, bias, padding=padding, groups=weight.shape[0])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (gradient,) = gradients
        images, weight = ctx.saved_tensors
        channels, _, rows, columns = weight.shape
        pad = ctx.padding
        height, width = gradient.shape[2:]
        to_images = torch.ops.aten.convolution_backward(
            *(gradient, images, weight, [channels], [1, 1], [pad, pad], [1, 1], False, [0, 0]),
            *(channels, [True, False, False]),
        )[0]
        seen = F.pad(images, (pad, pad, pad, pad)).permute(0, 2, 3, 1)  # [n, h, w, c]
        by_pixel = gradient.permute(0, 2, 3, 1)
        sums = [
            (seen[:, y : y + height, x : x + width] * by_pixel).sum((0, 1, 2))
            for y in range(rows)
            for x in range(columns)
        ]
        to_weight = torch.stack(sums, dim=1).view_as(weight)
        return to_images, to_weight, gradient.sum((0, 2, 3)), None


class DepthwiseConv2d(nn.Conv2d):
    """A depthwise convolution with bias that knows the fast way for small maps."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (torch's name)
        """Convolve."""
        small = input.shape[-1] < self.kernel_size[1] or input.shape[-2] < self.kernel_size[0]
        if small and torch.is_grad_enabled() and input.device.type == "cpu":
            assert self.bias is not None
            padding = self.padding[0]
            assert isinstance(padding, int)
            made: Tensor = _SmallMap.apply(input, self.weight, self.bias, padding)
            return made
        return super().forward(input)


def _fits(layer: nn.Module) -> bool:
    return (
        type(layer) is nn.Conv2d
        and layer.groups == layer.in_channels == layer.out_channels
        and layer.bias is not None
        and layer.stride == (1, 1)
        and layer.dilation == (1, 1)
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
        and layer.padding[0] == layer.padding[1]
    )


def use_fast_depthwise(module: nn.Module) -> int:
    """Replace the depthwise convolutions of a module without storage; return how many."""
    found = [(name, layer) for name, layer in module.named_modules() if _fits(layer)]
    for name, layer in found:
        assert isinstance(layer, nn.Conv2d)
        fast = DepthwiseConv2d(
            layer.in_channels,
            layer.out_channels,
            (layer.kernel_size[0], layer.kernel_size[1]),
            padding=int(layer.padding[0]),
            groups=layer.groups,
            device="meta",
        )
        module.set_submodule(name, fast)
    return len(found)
