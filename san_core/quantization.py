"""Int8: how a main network is quantised, for whoever simulates it and whoever runs it.

What enters a convolution or linear layer is rounded to 256 levels of a range that was calibrated
from unlabelled images for each trained resolution; kernels are rounded per output channel when they
are generated. A layer without a range stays in float. Ranges live in a bundle's extras, as
`quantization.{S}.{layer}`, and follow the batch norm: where a mode blends two of them, it blends
the ranges of both.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from san_core.folding import FoldedArchitecture
from san_core.mode import Mode
from san_core.scale_adaptive_network import ScaleAdaptiveNetwork

PREFIX = "quantization"
WEIGHT_PEAK = 63
"""Largest quantised weight. Half of int8's range, for without VNNI the sum of two products of
255 * 127 overflows 16 bits; the bit is given up everywhere, so that all hosts answer alike."""


@dataclass(frozen=True)
class Range:
    """The values that quantised activations can take: `high` and down to 0, or to about -`high`."""

    high: float
    signed: bool

    @property
    def step(self) -> float:
        """Distance between neighbouring values."""
        return self.high / (127 if self.signed else 255)

    @property
    def low(self) -> float:
        """The smallest value; 0 is always one of the 256."""
        return -128 * self.step if self.signed else 0.0

    def round(self, values: Tensor) -> Tensor:
        """Round values to those that can be taken."""
        first = -128 if self.signed else 0
        return (values / self.step).round_().clamp_(first, first + 255).mul_(self.step)


def quantisable(module: nn.Module) -> dict[str, nn.Module]:
    """Return the layers of a folded architecture that can be quantised."""
    return {n: m for n, m in module.named_modules() if isinstance(m, (nn.Conv2d, nn.Linear))}


def to_extras(resolution: int, ranges: Mapping[str, Range]) -> dict[str, Tensor]:
    """Write the ranges of a trained resolution as a bundle keeps them: [low, high]."""
    return {
        f"{PREFIX}.{resolution}.{layer}": torch.tensor([found.low, found.high])
        for layer, found in ranges.items()
    }


def _at(extras: Mapping[str, Tensor], resolution: int) -> dict[str, Range]:
    prefix = f"{PREFIX}.{resolution}."
    ranges = {}
    for name, tensor in extras.items():
        if name.startswith(prefix):
            low, high = tensor.tolist()
            ranges[name.removeprefix(prefix)] = Range(high, low < 0)
    return ranges


def quantised_resolutions(extras: Mapping[str, Tensor]) -> tuple[int, ...]:
    """Return the trained resolutions that have ranges."""
    found = {n.split(".")[1] for n in extras if n.startswith(f"{PREFIX}.")}
    return tuple(sorted(map(int, found), reverse=True))


def ranges_for(
    network: ScaleAdaptiveNetwork, extras: Mapping[str, Tensor], resolution: int, mode: Mode
) -> dict[str, Range]:
    """Return the ranges of a (resolution, mode) by layer; empty if it cannot be quantised."""
    parts = network.ingredients(resolution, mode)
    lower, upper = _at(extras, parts.lower), _at(extras, parts.upper)
    blended = {}
    for layer in lower.keys() & upper.keys():
        one, other = lower[layer], upper[layer]
        high = (1 - parts.blend) * one.high + parts.blend * other.high
        blended[layer] = Range(high, one.signed or other.signed)
    return blended


def quantise_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round a kernel [o, ...] per output channel; return int8 and the step [o, 1, ...] of each."""
    peak = weight.abs().amax(tuple(range(1, weight.dim())), keepdim=True)
    step = peak.clamp(min=torch.finfo(torch.float32).tiny) / WEIGHT_PEAK
    return (weight / step).round_().to(torch.int8), step


class Int8Simulation:
    """Runs a folded architecture in float32 with the rounding of int8; slow, and exact about it."""

    def __init__(self, folded: FoldedArchitecture) -> None:
        self._module = copy.deepcopy(folded.module)
        self._layers = tuple(quantisable(self._module))

    def __call__(
        self, images: Tensor, tensors: Mapping[str, Tensor], ranges: Mapping[str, Range]
    ) -> Tensor:
        """Run images [n, 3, h, w] through the network of `tensors`, a folded state dict."""
        rounded = dict(tensors)
        handles = []
        try:
            for layer in self._layers:
                if layer not in ranges:
                    continue
                weight, step = quantise_weight(tensors[f"{layer}.weight"])
                rounded[f"{layer}.weight"] = weight * step
                handles.append(
                    self._module.get_submodule(layer).register_forward_pre_hook(
                        _rounding(ranges[layer])
                    )
                )
            logits: Tensor = functional_call(self._module, rounded, (images,))
        finally:
            for handle in handles:
                handle.remove()
        return logits


def _rounding(found: Range):  # type: ignore[no-untyped-def]
    def before(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (found.round(inputs[0]), *inputs[1:])

    return before
