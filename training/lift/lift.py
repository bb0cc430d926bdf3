"""Lifting pretrained CNNs into a Scale Adaptive Network.

One network, trained at its native resolution n:   kernel(T) = K + (eps_T - eps_n) * W,  W = 0;
or, with knots, kernel(T) = K from the first knot up and K + W at each of the others, W = 0.
Several, each trained at a resolution of its own:  W and b by least squares over the encodings.
Either way eps_n is the meta learner's origin, which makes b the kernel at n.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from san_core.network.meta_learner import LinearMetaLearner, PiecewiseLinearMetaLearner
from san_core.network.network_config import MetaLearnerKind, NetworkConfig
from san_core.network.private_batch_norm import AFFINE, STATISTICS
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from san_core.network.scale_encoding import encode
from san_core.resolution import nearest
from training.errors import PretrainedError

StateDict = Mapping[str, Tensor]


@dataclass(frozen=True)
class Residual:
    """How far one given network is from what was made of it, relative to its own size."""

    resolution: int
    kernels: float
    """|generated - given| / |given| over all generated kernels."""
    shared: float
    """The same over the tensors that all resolutions share: the head, mostly."""


@dataclass(frozen=True)
class Lifted:
    """A lifted network, and how well it fits each network it was made of."""

    network: ScaleAdaptiveNetwork
    native: int
    residuals: tuple[Residual, ...]


def _check(
    states: Mapping[int, StateDict],
    native: int,
    resolutions: Sequence[int],
    knots: Sequence[int],
) -> None:
    if native not in states:
        raise PretrainedError(
            f"No weights were given for the native resolution {native}, only for "
            f"{', '.join(map(str, sorted(states, reverse=True)))}."
        )
    absent = [r for r in (native, *states) if r not in resolutions]
    if absent:
        raise PretrainedError(f"{absent[0]} must be one of --resolutions: it has weights.")
    if knots and len(states) > 1:
        raise PretrainedError("Give one network, or no --knots: a line is fitted through several.")
    if knots and native < max(knots):
        raise PretrainedError(f"The native {native} is below the first of --knots {max(knots)}.")


def _fit_line(kernels: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Least squares of kernels [m, N] over encodings less the origin [m]: W [N] and b [N]."""
    if len(offsets) == 1:
        return torch.zeros_like(kernels[0]), kernels[0].clone()
    design = torch.stack([offsets, torch.ones_like(offsets)], dim=1).double()  # [m, 2]
    solver = torch.linalg.pinv(design).to(kernels.dtype)  # [2, m]
    slope, bias = solver @ kernels
    return slope, bias


def _relative(made: Tensor, given: Tensor) -> float:
    size = float(torch.linalg.vector_norm(given.double()))
    return float(torch.linalg.vector_norm((made - given).double())) / size if size else 0.0


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors]) if tensors else torch.zeros(0)


@torch.no_grad()
def lift(
    architecture: str,
    states: Mapping[int, StateDict],
    *,
    native: int,
    resolutions: Sequence[int],
    num_classes: int = 1000,
    knots: Sequence[int] = (),
) -> Lifted:
    """Lift state dicts of a stock CNN, one per resolution it was trained at.

    With `knots` the meta learner is piecewise linear; it takes one network only.

    Private batch norm of a resolution without weights of its own starts as a copy of the nearest
    given one. Shared tensors are the mean over the given networks; counters are the native one's.
    """
    _check(states, native, resolutions, knots)
    config = NetworkConfig(
        architecture,
        tuple(resolutions),
        num_classes,
        MetaLearnerKind.PIECEWISE if knots else MetaLearnerKind.LINEAR,
        origin=encode(native),
        knots=tuple(knots),
    )
    network = ScaleAdaptiveNetwork(config, initialisation=None)
    learner = network.meta_learner
    assert isinstance(learner, LinearMetaLearner | PiecewiseLinearMetaLearner)
    given = sorted(states, reverse=True)
    names = [f"{slot.name}.weight" for slot in network.kernels]
    kernels = torch.stack([_flat([states[r][n] for n in names]) for r in given])
    offsets = torch.tensor([encode(r) - config.origin for r in given])
    slope, bias = _fit_line(kernels, offsets)
    learner.weight.copy_(slope)
    learner.bias.copy_(bias)
    shared = network.shared.by_name()
    for name, tensor in shared.items():
        if tensor.is_floating_point():
            tensor.copy_(torch.stack([states[r][name].to(tensor.dtype) for r in given]).mean(0))
        else:
            tensor.copy_(states[native][name])
    for resolution in network.resolutions:
        source = states[nearest(resolution, given)]
        norm = network.batch_norm(resolution)
        for kind in AFFINE + STATISTICS:
            parts = [source[f"{slot.name}.{kind}"] for slot in network.norms]
            getattr(norm, kind).copy_(_flat(parts))
    residuals = tuple(
        Residual(
            r,
            _relative(learner(r), own),
            _relative(_flat(list(shared.values())), _flat([states[r][n] for n in shared])),
        )
        for r, own in zip(given, kernels, strict=True)
    )
    return Lifted(network.eval(), native, residuals)
