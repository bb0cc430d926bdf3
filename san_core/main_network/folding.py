"""Folding batch norm into the convolutions before it.

Which BN follows which convolution is read off the stock architecture once, by tracing it with
torch.fx; after that folding a generated state dict is a few multiplications. BN layers that follow
something else (DenseNet's, say) stay.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock, get_ident
from typing import Any

import torch
from torch import Tensor, fx, nn

from san_core.errors import ArchitectureError
from san_core.mode import Mode
from san_core.network.generation import KernelBuffer
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork

_NORM_TENSORS = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


class _LayerTracer(fx.Tracer):
    """Traces down to layers: whatever has no children, or is a convolution or BN, is a leaf.

    While it traces, fx has every call of every module in the process come here: those of other
    threads are none of its business.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread = get_ident()

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if get_ident() != self._thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return (
            isinstance(m, (nn.Conv2d, nn.BatchNorm2d))
            or not any(True for _ in m.children())
            or super().is_leaf_module(m, module_qualified_name)
        )


@dataclass(frozen=True)
class _Pair:
    convolution: str
    norm: str
    epsilon: float
    had_bias: bool


def _pairs(skeleton: nn.Module) -> list[_Pair]:
    try:
        graph = _LayerTracer().trace(skeleton.eval())
    except Exception as error:  # fx raises whatever the traced forward raises
        raise ArchitectureError(
            f"{type(skeleton).__name__} cannot be folded: torch.fx cannot trace it ({error})."
        ) from error
    layers = dict(skeleton.named_modules())
    called = [str(node.target) for node in graph.nodes if node.op == "call_module"]
    pairs = []
    for node in graph.nodes:
        if node.op != "call_module" or not isinstance(layers[str(node.target)], nn.BatchNorm2d):
            continue
        source = node.args[0]
        if not isinstance(source, fx.Node) or source.op != "call_module":
            continue
        convolution = layers[str(source.target)]
        used_once = len(source.users) == 1 and called.count(str(source.target)) == 1
        if isinstance(convolution, nn.Conv2d) and used_once:
            norm = layers[str(node.target)]
            assert isinstance(norm, nn.BatchNorm2d)
            pairs.append(
                _Pair(str(source.target), str(node.target), norm.eps, convolution.bias is not None)
            )
    return pairs


def _what_remains(norm: nn.Module) -> nn.Module:
    """Return the module that replaces a folded BN: timm's carry an activation, others nothing."""
    parts = [getattr(norm, name) for name in ("drop", "act") if hasattr(norm, name)]
    return nn.Sequential(*parts) if parts else nn.Identity()


class FoldedArchitecture:
    """A stock architecture with its BN layers folded away; planned once, used for every point."""

    def __init__(self, skeleton: nn.Module) -> None:
        self._folds = _pairs(skeleton)
        self._unfolded = KernelBuffer()
        self._lock = Lock()
        self.module = copy.deepcopy(skeleton).eval()
        """The folded architecture, without storage; convolutions that took a BN have a bias."""
        for fold in self._folds:
            convolution = self.module.get_submodule(fold.convolution)
            assert isinstance(convolution, nn.Conv2d)
            if convolution.bias is None:
                shape = (convolution.out_channels,)
                convolution.bias = nn.Parameter(convolution.weight.new_empty(shape))
            remains = _what_remains(self.module.get_submodule(fold.norm))
            self.module.set_submodule(fold.norm, remains)

    @property
    def folds(self) -> list[tuple[str, str, float, bool]]:
        """The folds: convolution, norm, its epsilon, and whether the convolution had a bias."""
        return [(x.convolution, x.norm, x.epsilon, x.had_bias) for x in self._folds]

    @property
    def folded(self) -> int:
        """How many BN layers were folded."""
        return len(self._folds)

    @torch.no_grad()
    def generate(
        self, network: ScaleAdaptiveNetwork, resolution: int, mode: Mode = Mode.PROXY
    ) -> dict[str, Tensor]:
        """Generate a main network and fold it: a state dict of `module`, its kernels its own.

        The unfolded kernels pass through memory that is kept: fresh memory costs several times
        what the arithmetic does.
        """
        with self._lock:
            state = self.fold(network.generate(resolution, mode, out=self._unfolded))
            for name in self._kept(network):
                state[name] = state[name].clone()
        return state

    def _kept(self, network: ScaleAdaptiveNetwork) -> list[str]:
        """Names of the generated kernels that no BN is folded into."""
        folded = {fold.convolution for fold in self._folds}
        return [f"{slot.name}.weight" for slot in network.kernels if slot.name not in folded]

    @torch.no_grad()
    def fold(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """Turn a state dict of the stock architecture into one of `module`."""
        return self.fold_differentiably(state_dict)

    def fold_differentiably(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """Fold as part of a graph: for training with fixed statistics.

        W' = W * gamma / sqrt(var + eps) per output channel; b' = beta + (b - mean) * that factor.
        """
        folded = copy.copy(state_dict)
        for fold in self._folds:
            gamma, beta, mean, var, _ = (
                folded.pop(f"{fold.norm}.{name}") for name in _NORM_TENSORS
            )
            factor = gamma * torch.rsqrt(var + fold.epsilon)
            kernel = folded[f"{fold.convolution}.weight"]
            folded[f"{fold.convolution}.weight"] = kernel * factor.view(-1, 1, 1, 1)
            bias = folded[f"{fold.convolution}.bias"] - mean if fold.had_bias else -mean
            folded[f"{fold.convolution}.bias"] = torch.addcmul(beta, bias, factor)
        return folded
