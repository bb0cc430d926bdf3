"""Generating folded main networks from plain arrays: no torch, and nothing of the architecture.

A `Blueprint` says what of a stock CNN is generated, normalised and shared, and which batch norm
folds into which convolution. It is drawn once, with torch, and kept as JSON beside the graph of the
architecture. `MainNetworks` follows it: the same numbers as `FoldedArchitecture.generate`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from san_core.bundle import Bundle
from san_core.errors import BundleMismatchError
from san_core.mode import Ingredients, Mode, ingredients
from san_core.network.network_config import (
    KernelSlot,
    MetaLearnerKind,
    NetworkConfig,
    NormSlot,
    head_tensors,
    knot_shares,
)
from san_core.network.scale_encoding import encode
from san_core.resolution import check_resolution, interpolated, nearest

if TYPE_CHECKING:
    from san_core.main_network.folding import FoldedArchitecture
    from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork

Floats = NDArray[np.float32]
_AFFINE = ("weight", "bias")
_STATISTICS = ("running_mean", "running_var")


class Fold(NamedTuple):
    """A BN layer that becomes part of the convolution before it."""

    convolution: str
    norm: str
    epsilon: float
    had_bias: bool


@dataclass(frozen=True)
class Blueprint:
    """How the main networks of one architecture are put together."""

    kernels: tuple[KernelSlot, ...]
    norms: tuple[NormSlot, ...]
    shared: Mapping[str, tuple[int, ...]]
    """Shapes of the floating-point tensors that are the same for every resolution."""
    folds: tuple[Fold, ...]
    parameters: int
    """Parameters of the stock CNN."""

    @classmethod
    def draw(cls, network: ScaleAdaptiveNetwork, folded: FoldedArchitecture) -> Self:
        """Read it off a network and its folded architecture."""
        shared = {
            name: tuple(tensor.shape)
            for name, tensor in network.shared.by_name().items()
            if tensor.is_floating_point()
        }
        folds = tuple(Fold(*fold) for fold in folded.folds)
        parameters = sum(p.numel() for p in network.skeleton.parameters())
        return cls(network.kernels, network.norms, shared, folds, parameters)

    def to_json(self) -> str:
        """As text, for `from_json`."""
        return json.dumps(asdict(self) | {"folds": [list(fold) for fold in self.folds]})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        data: dict[str, Any] = json.loads(text)
        return cls(
            tuple(KernelSlot(x["name"], tuple(x["shape"]), x["groups"]) for x in data["kernels"]),
            tuple(NormSlot(**x) for x in data["norms"]),
            {name: tuple(shape) for name, shape in data["shared"].items()},
            tuple(Fold(*fold) for fold in data["folds"]),
            data["parameters"],
        )

    @property
    def weight_bytes(self) -> int:
        """Bytes of a main network's weights in float32, the statistics of its BN included."""
        return 4 * (self.parameters + 2 * sum(slot.channels for slot in self.norms))


class MainNetworks:
    """Generates and folds the main networks of one bundle."""

    def __init__(self, bundle: Bundle, blueprint: Blueprint) -> None:
        self._config: NetworkConfig = bundle.manifest.network
        self._temperatures = bundle.manifest.temperatures
        self._arrays = bundle.arrays
        kept = (name.split(".") for name in self._arrays if name.startswith("calibrated."))
        self._calibrated = tuple({int(parts[1]) for parts in kept})
        self._blueprint = blueprint
        self._check(str(bundle.path))

    def ingredients(self, resolution: int, mode: Mode) -> Ingredients:
        """Tell what a (resolution, mode) is put together from."""
        check_resolution(resolution)
        return ingredients(resolution, mode, self._config.resolutions, self._calibrated)

    def generate(self, resolution: int, mode: Mode = Mode.PROXY) -> dict[str, Floats]:
        """Generate the main network of (resolution, mode) and fold it: a folded state dict.

        W' = W * gamma / sqrt(var + eps) per output channel; b' = beta + (b - mean) * that factor.
        """
        parts = self.ingredients(resolution, mode)
        tensors = {name: self._float(f"shared.{_escape(name)}") for name in self._blueprint.shared}
        if self._temperatures:
            temperature = np.float32(interpolated(self._temperatures, parts.encoding))
            for name in head_tensors(self._blueprint.shared, self._config.num_classes):
                tensors[name] = tensors[name] / temperature
        flat, at = self._kernels(parts.encoding), 0
        for kernel in self._blueprint.kernels:
            tensors[f"{kernel.name}.weight"] = flat[at : at + kernel.numel].reshape(kernel.shape)
            at += kernel.numel
        norms = self._norms(parts)
        for fold in self._blueprint.folds:
            gamma, beta, mean, var = (
                norms.pop(f"{fold.norm}.{kind}") for kind in _AFFINE + _STATISTICS
            )
            factor = gamma / np.sqrt(var + np.float32(fold.epsilon))
            weight, bias = f"{fold.convolution}.weight", f"{fold.convolution}.bias"
            tensors[weight] = tensors[weight] * factor.reshape(-1, 1, 1, 1)
            shift = tensors[bias] - mean if fold.had_bias else -mean
            tensors[bias] = beta + shift * factor
        return tensors | norms

    def _float(self, name: str) -> Floats:
        return np.asarray(self._arrays[name], np.float32)

    def _kernels(self, encoding: int) -> Floats:
        """All kernels as one flat vector (see `san_core.network.meta_learner`)."""
        config = self._config
        if config.meta_learner is MetaLearnerKind.PRIVATE:
            closest = nearest(encoding, config.resolutions)
            return self._float(f"meta_learner.kernels.{closest}")
        bias = self._float("meta_learner.bias")
        if config.meta_learner is MetaLearnerKind.PIECEWISE:
            rows = self._arrays["meta_learner.weight"]
            for row, share in knot_shares(config.knots, encoding):
                bias = bias + np.float32(share) * np.asarray(rows[row], np.float32)
            return bias
        weight = self._float("meta_learner.weight")
        if config.meta_learner is MetaLearnerKind.LINEAR:
            native = config.native_from is not None and encoding >= config.native_from
            away = 0.0 if native else encode(encoding) - config.origin
            return bias + np.float32(away) * weight
        hidden = np.float32(encode(encoding)) * self._float("meta_learner.hidden_weight")
        hidden = np.maximum(hidden + self._float("meta_learner.hidden_bias"), 0.0)  # [L, h]
        sizes = [slot.numel for slot in self._blueprint.kernels]
        kernels: Floats = bias + np.einsum("nh,nh->n", weight, hidden.repeat(sizes, axis=0))
        return kernels

    def _norms(self, parts: Ingredients) -> dict[str, Floats]:
        """The BN tensors by their stock names."""
        lower, upper = (
            f"batch_norms.{self._config.batch_norm(r)}" for r in (parts.lower, parts.upper)
        )
        share = np.float32(parts.blend)
        tensors: dict[str, Floats] = {}
        for kind in _AFFINE + _STATISTICS:
            flat = self._float(f"{lower}.{kind}")
            if parts.blend:
                flat = flat + share * (self._float(f"{upper}.{kind}") - flat)
            if parts.statistics is not None and kind in _STATISTICS:
                flat = self._float(f"calibrated.{parts.statistics}.{kind}")
            at = 0
            for slot in self._blueprint.norms:
                tensors[f"{slot.name}.{kind}"] = flat[at : at + slot.channels]
                at += slot.channels
        return tensors

    def _check(self, path: str) -> None:
        """Raise if the bundle's tensors are not those of the blueprint."""
        blueprint, config = self._blueprint, self._config
        size = sum(slot.numel for slot in blueprint.kernels)
        channels = (sum(slot.channels for slot in blueprint.norms),)
        expected = {f"shared.{_escape(n)}": shape for n, shape in blueprint.shared.items()}
        for key in config.batch_norms:
            expected |= {f"batch_norms.{key}.{kind}": channels for kind in _AFFINE + _STATISTICS}
        for resolution in self._calibrated:
            expected |= {f"calibrated.{resolution}.{kind}": channels for kind in _STATISTICS}
        if config.meta_learner is MetaLearnerKind.PRIVATE:
            expected |= {f"meta_learner.kernels.{r}": (size,) for r in config.resolutions}
        else:
            expected["meta_learner.bias"] = (size,)
            if config.meta_learner is MetaLearnerKind.LINEAR:
                expected["meta_learner.weight"] = (size,)
            elif config.meta_learner is MetaLearnerKind.PIECEWISE:
                expected["meta_learner.weight"] = (len(config.knots) - 1, size)
        wrong = [
            name
            for name, shape in expected.items()
            if name not in self._arrays or self._arrays[name].shape != shape
        ]
        if wrong:
            raise BundleMismatchError(
                f"The tensors of {path} do not fit its manifest: "
                f"{', '.join(wrong[:5])} missing or of another shape."
            )


def _escape(name: str) -> str:
    return name.replace(".", "/")  # as ScaleAdaptiveNetwork names its shared tensors
