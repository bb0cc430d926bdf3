"""Calibrating int8: the range of what enters each layer, and what rounding it costs."""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from san_core.main_network.folding import FoldedArchitecture
from san_core.main_network.quantization import Int8Simulation, Range, quantisable
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork

_BINS = 2048
_CANDIDATES = 80
"""Bins as torch's HistogramObserver has; ranges that are tried, from an eighth of the peak up."""


class Histogram:
    """A histogram of magnitudes from 0 to the largest seen so far, and the means of channels."""

    def __init__(self) -> None:
        self.counts = torch.zeros(_BINS)
        self.peak = 0.0
        self.signed = False
        self._sums: Tensor | float = 0.0
        self._seen = 0

    def add(self, values: Tensor) -> None:
        """Count the magnitudes of values [n, channels, ...]."""
        places = values.transpose(0, 1).reshape(values.shape[1], -1) if values.dim() > 1 else values
        self._sums = self._sums + places.double().sum(-1)
        self._seen += places.shape[-1]
        low, high = (float(v) for v in values.aminmax())
        self.signed |= low < 0
        largest = max(-low, high)
        if largest == 0:
            return
        if self.peak == 0:
            self.peak = largest
        while largest > self.peak:
            halved = self.counts.view(-1, 2).sum(1)
            self.counts = torch.cat([halved, torch.zeros(_BINS // 2)])
            self.peak *= 2
        self.counts += torch.histc(values.abs().float(), _BINS, 0.0, self.peak).cpu()

    def best_range(self) -> Range:
        """Choose where to clip so that the squared error of rounding and clipping is least."""
        mean = torch.as_tensor(self._sums / max(self._seen, 1)).float().numpy()
        if self.peak == 0:
            return Range(1.0, False, mean)
        centres = (torch.arange(_BINS) + 0.5) * (self.peak / _BINS)
        candidates = []
        for part in range(_CANDIDATES // 8, _CANDIDATES + 1):
            found = Range(self.peak * part / _CANDIDATES, self.signed, mean)
            error = (found.round(centres) - centres).square_().mul_(self.counts).sum()
            candidates.append((float(error), found))
        return min(candidates, key=lambda c: c[0])[1]


@torch.no_grad()
def calibrate_ranges(
    network: ScaleAdaptiveNetwork,
    folded: FoldedArchitecture,
    resolution: int,
    batches: Iterable[Tensor],
    progress: Callable[[int], None] | None = None,
) -> dict[str, Range]:
    """Choose the range of what enters each layer at a trained resolution."""
    tensors = folded.fold(network.generate(resolution))
    seen = {name: Histogram() for name in quantisable(folded.module)}

    def watch(name: str, layer: nn.Module) -> torch.utils.hooks.RemovableHandle:
        return layer.register_forward_pre_hook(lambda _, inputs: seen[name].add(inputs[0]))

    handles = [watch(name, layer) for name, layer in quantisable(folded.module).items()]
    done = 0
    try:
        for batch in batches:
            functional_call(folded.module, tensors, (batch,))
            done += len(batch)
            if progress:
                progress(done)
    finally:
        for handle in handles:
            handle.remove()
    return {name: histogram.best_range() for name, histogram in seen.items()}


@torch.no_grad()
def sensitivities(
    network: ScaleAdaptiveNetwork,
    folded: FoldedArchitecture,
    resolution: int,
    images: Tensor,
    ranges: Mapping[str, Range],
    progress: Callable[[str], None] | None = None,
) -> dict[str, float]:
    """Measure each layer's share: noise power over signal power of the logits, it alone rounded."""
    tensors = folded.fold(network.generate(resolution))
    expected = functional_call(folded.module, tensors, (images,))
    power = (expected - expected.mean(1, keepdim=True)).square().mean()
    simulate = Int8Simulation(folded)
    found = {}
    for layer, chosen in ranges.items():
        noise = simulate(images, tensors, {layer: chosen}) - expected
        found[layer] = float(noise.square().mean() / power)
        if progress:
            progress(layer)
    return found
