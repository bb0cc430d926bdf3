"""Int8: how a main network is quantised, for whoever simulates it and whoever runs it.

What enters a convolution or linear layer is rounded to 256 levels of a range that was calibrated
from unlabelled images for each trained resolution; kernels are rounded per output channel when they
are generated. Rounding shifts what a channel gives on average, by the kernel's error times the mean
of what enters; the bias takes that back (Nagel et al., "Data-free quantization through weight
equalization and bias correction", 2019). A layer without a range stays in float. Ranges live in a
bundle's extras, as `quantization.{S}.{layer}`, means as `quantization.{S}.{layer}.mean`; they
follow the batch norm: where a mode blends two of them, it blends the ranges and means of both.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from san_core.mode import Ingredients, Mode

if TYPE_CHECKING:  # torch is for the simulation; whoever serves does without
    from torch import Tensor, nn

    from san_core.main_network.folding import FoldedArchitecture

PREFIX = "quantization"
_MEAN = ".mean"
WEIGHT_PEAK = 63
"""Largest quantised weight. Half of int8's range, for without VNNI the sum of two products of
255 * 127 overflows 16 bits; the bit is given up everywhere, so that all hosts answer alike."""


Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Range:
    """The values that quantised activations can take: `high` and down to 0, or to about -`high`."""

    high: float
    signed: bool
    mean: Floats | None = field(default=None, compare=False)
    """Mean of each channel before rounding; None: not known, so the bias stays as it is."""

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
    from torch import nn

    return {n: m for n, m in module.named_modules() if isinstance(m, (nn.Conv2d, nn.Linear))}


def to_extras(resolution: int, ranges: Mapping[str, Range]) -> dict[str, Tensor]:
    """Write the ranges of a trained resolution as a bundle keeps them: [low, high], and means."""
    import torch

    extras = {}
    for layer, found in ranges.items():
        name = f"{PREFIX}.{resolution}.{layer}"
        extras[name] = torch.tensor([found.low, found.high])
        if found.mean is not None:
            extras[name + _MEAN] = torch.from_numpy(found.mean).half()
    return extras


def _at(extras: Mapping[str, Any], resolution: int) -> dict[str, Range]:
    prefix = f"{PREFIX}.{resolution}."
    ranges = {}
    for name, tensor in extras.items():
        if name.startswith(prefix) and not name.endswith(_MEAN):
            low, high = tensor.tolist()
            mean = extras.get(name + _MEAN)
            mean = None if mean is None else np.asarray(mean.tolist(), np.float32)
            ranges[name.removeprefix(prefix)] = Range(high, low < 0, mean)
    return ranges


def quantised_resolutions(extras: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the trained resolutions that have ranges."""
    found = {n.split(".")[1] for n in extras if n.startswith(f"{PREFIX}.")}
    return tuple(sorted(map(int, found), reverse=True))


class HasIngredients(Protocol):
    """A meta network, whatever its tensors are."""

    def ingredients(self, resolution: int, mode: Mode) -> Ingredients:
        """Tell what a (resolution, mode) is put together from."""


def ranges_for(
    network: HasIngredients, extras: Mapping[str, Any], resolution: int, mode: Mode
) -> dict[str, Range]:
    """Return the ranges of a (resolution, mode) by layer; empty if it cannot be quantised."""
    parts = network.ingredients(resolution, mode)
    lower, upper = _at(extras, parts.lower), _at(extras, parts.upper)
    blended = {}
    for layer in lower.keys() & upper.keys():
        one, other = lower[layer], upper[layer]
        high = (1 - parts.blend) * one.high + parts.blend * other.high
        mean = one.mean
        if mean is not None and other.mean is not None:
            mean = mean + np.float32(parts.blend) * (other.mean - mean)
        blended[layer] = Range(high, one.signed or other.signed, mean)
    return blended


def quantise_weight(
    weight: NDArray[np.float32],
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Round a kernel [o, ...] per output channel; return int8 and the step [o, 1, ...] of each."""
    peak = np.abs(weight).max(axis=tuple(range(1, weight.ndim)), keepdims=True)
    step = np.maximum(peak, np.finfo(np.float32).tiny) / np.float32(WEIGHT_PEAK)
    return np.rint(weight / step).astype(np.int8), step


Rounded = tuple[NDArray[np.int8], NDArray[np.float32]]
"""A kernel in int8, and the step of each of its output channels."""


def rounded_kernels(
    tensors: Mapping[str, Floats], ranges: Mapping[str, Range]
) -> dict[str, Rounded]:
    """Return the kernels of the layers that have a range, by layer."""
    return {layer: quantise_weight(tensors[f"{layer}.weight"]) for layer in ranges}


def corrected_biases(
    tensors: Mapping[str, Floats], ranges: Mapping[str, Range], kernels: Mapping[str, Rounded]
) -> dict[str, Floats]:
    """Return the biases that undo the mean shift of rounded kernels, by their names in `tensors`.

    `tensors` is a folded state dict; layers without a bias or a known mean have none here.
    """
    corrected = {}
    for layer, found in ranges.items():
        bias = tensors.get(f"{layer}.bias")
        if bias is None or found.mean is None:
            continue
        weight = tensors[f"{layer}.weight"]
        rounded, step = kernels[layer]
        error = (rounded * step - weight).reshape(*weight.shape[:2], -1).sum(2)  # [o, i / groups]
        groups = found.mean.size // error.shape[1]
        # Not a matrix product: BLAS would have a thread for each core spin for it.
        shift = (error.reshape(groups, -1, error.shape[1]) * found.mean.reshape(groups, 1, -1)).sum(
            2
        )
        corrected[f"{layer}.bias"] = bias - shift.reshape(-1)
    return corrected


class Int8Simulation:
    """Runs a folded architecture in float32 with the rounding of int8; slow, and exact about it."""

    def __init__(self, folded: FoldedArchitecture) -> None:
        self._module = copy.deepcopy(folded.module)
        self._layers = tuple(quantisable(self._module))

    def __call__(
        self, images: Tensor, tensors: Mapping[str, Tensor], ranges: Mapping[str, Range]
    ) -> Tensor:
        """Run images [n, 3, h, w] through the network of `tensors`, a folded state dict."""
        import torch
        from torch.func import functional_call

        arrays = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
        kernels = rounded_kernels(arrays, ranges)
        biases = corrected_biases(arrays, ranges, kernels)
        rounded = {**tensors, **{name: torch.from_numpy(b) for name, b in biases.items()}}
        handles = []
        try:
            for layer in self._layers:
                if layer not in ranges:
                    continue
                weight, step = kernels[layer]
                rounded[f"{layer}.weight"] = torch.from_numpy(weight * step)
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
