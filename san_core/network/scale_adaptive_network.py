"""The Scale Adaptive Network: one meta network over a stock CNN.

The stock module is only a skeleton without storage, but for constants that no state dict carries.
For a (resolution, mode) the meta learner gives its kernels, private batch norm its BN tensors, and
the rest is shared; `torch.func.functional_call` runs it with them.
"""

import copy
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from san_core.errors import ResolutionError
from san_core.mode import Ingredients, Mode, ingredients
from san_core.network.architectures import build, constants, dissect
from san_core.network.generation import KernelBuffer, StateDict, StateDictTemplate
from san_core.network.meta_learner import Initialisation, make_meta_learner
from san_core.network.network_config import NetworkConfig, Temperatures, head_tensors
from san_core.network.private_batch_norm import STATISTICS, PrivateBatchNorm, blended, by_layer
from san_core.resolution import check_resolution, interpolated


class ScaleAdaptiveNetwork(nn.Module):
    """A meta network that parameterises a stock CNN for any (resolution, mode)."""

    def __init__(
        self,
        config: NetworkConfig,
        module: nn.Module | None = None,
        *,
        initialisation: Initialisation | None = "kaiming",
    ) -> None:
        """Wrap `module`, or the stock CNN that the config names.

        `initialisation=None` draws nothing: for weights that are loaded right after.
        """
        super().__init__()
        self.config = config
        if module is None:
            module = build(
                config.architecture, config.num_classes, "cpu" if initialisation else "meta"
            )
            if not initialisation and constants(module):  # whose values only building gives
                module = build(config.architecture, config.num_classes)
        anatomy = dissect(module, generate_stem=config.generate_stem)
        self.kernels = anatomy.kernels
        self.norms = anatomy.norms
        self.meta_learner = make_meta_learner(
            config.meta_learner,
            anatomy.kernels,
            config.resolutions,
            config.origin,
            config.native_from,
            config.knots,
        )
        if initialisation:
            self.meta_learner.initialise(initialisation, config.resolutions)
        self.batch_norms = nn.ModuleDict(
            {key: PrivateBatchNorm(self.norms) for key in config.batch_norms}
        )
        self.shared = _SharedTensors(module, anatomy.shared)
        self.temperatures: Temperatures = ()
        """The head's tensors are divided, so that whatever runs a main network has right scores."""
        self.calibrated = nn.ModuleDict()
        # In a tuple, so that the storage-less skeleton is no submodule with parameters of its own.
        self._skeleton = (_without_storage(module),)
        self._template = StateDictTemplate(self.skeleton, self.kernels)

    @property
    def resolutions(self) -> tuple[int, ...]:
        """The trained resolutions, largest first."""
        return self.config.resolutions

    @property
    def skeleton(self) -> nn.Module:
        """The stock architecture, without storage but for its constants."""
        return self._skeleton[0]

    @property
    def calibrated_resolutions(self) -> tuple[int, ...]:
        """The resolutions with calibrated statistics for `ideal`."""
        return tuple(int(key) for key in self.calibrated)

    def train(self, mode: bool = True) -> "ScaleAdaptiveNetwork":
        """Set training mode, of the skeleton too."""
        super().train(mode)
        self.skeleton.train(mode)
        return self

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> "ScaleAdaptiveNetwork":
        """Move to a device or type, the skeleton's constants too."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name in constants(self.skeleton):
            _set_buffer(self.skeleton, name, fn(self.skeleton.get_buffer(name)))
        return self

    def batch_norm(self, resolution: int) -> PrivateBatchNorm:
        """Return the private batch norm of a trained resolution."""
        key = self.config.batch_norm(resolution)
        if key not in self.batch_norms:
            raise ResolutionError(f"{resolution} is not one of the trained {self.resolutions}.")
        norm = self.batch_norms[key]
        assert isinstance(norm, PrivateBatchNorm)
        return norm

    def ingredients(self, resolution: int, mode: Mode) -> Ingredients:
        """Tell what a (resolution, mode) of this network is put together from."""
        check_resolution(resolution)
        return ingredients(resolution, mode, self.resolutions, self.calibrated_resolutions)

    def set_calibrated(self, resolution: int, statistics: Mapping[str, Tensor]) -> None:
        """Keep calibrated BN statistics, flat `running_mean` and `running_var`, for `ideal`."""
        check_resolution(resolution)
        holder = nn.Module()
        for name in STATISTICS:
            holder.register_buffer(name, statistics[name].detach().clone())
        self.calibrated[str(resolution)] = holder

    def _tempered_head(self, encoding: int) -> dict[str, Tensor]:
        if not self.temperatures:
            return {}
        own = self.shared.by_name()
        names = head_tensors({n: t.shape for n, t in own.items()}, self.config.num_classes)
        temperature = interpolated(self.temperatures, encoding)
        return {name: own[name] / temperature for name in names}

    def _norm_tensors(self, parts: Ingredients) -> dict[str, Tensor]:
        lower = self.batch_norm(parts.lower)
        flat = blended(lower, self.batch_norm(parts.upper), parts.blend)
        if parts.statistics is not None:
            holder = self.calibrated[str(parts.statistics)]
            flat |= {name: getattr(holder, name) for name in STATISTICS}
        tensors = by_layer(flat, self.norms)
        for slot, tracked in zip(self.norms, lower.num_batches_tracked.unbind(), strict=True):
            tensors[f"{slot.name}.num_batches_tracked"] = tracked
        return tensors

    def main_parameters(self, resolution: int, mode: Mode = Mode.PROXY) -> dict[str, Tensor]:
        """Return every tensor of the main network, differentiable, by its stock name."""
        parts = self.ingredients(resolution, mode)
        tensors = self.shared.by_name() | self._norm_tensors(parts)
        tensors |= self._tempered_head(parts.encoding)
        flat = self.meta_learner(parts.encoding)
        # split, unlike slicing, gathers the kernels' gradients in one copy
        kernels = flat.split_with_sizes([slot.numel for slot in self.kernels])
        for slot, kernel in zip(self.kernels, kernels, strict=True):
            tensors[f"{slot.name}.weight"] = kernel.view(slot.shape)
        return tensors

    def forward(self, images: Tensor, resolution: int, mode: Mode = Mode.PROXY) -> Tensor:
        """Run the main network of (resolution, mode) on images [n, 3, h, w] of any size."""
        tensors = self.main_parameters(resolution, mode)
        logits: Tensor = functional_call(self.skeleton, tensors, (images,))
        return logits

    @torch.no_grad()
    def generate(
        self, resolution: int, mode: Mode = Mode.PROXY, *, out: KernelBuffer | None = None
    ) -> StateDict:
        """Generate the stock architecture's state dict for (resolution, mode).

        The kernels are views of one fresh buffer, or of `out`, whose last main network they
        overwrite. Other tensors are the meta network's own, to be read and not written.
        """
        parts = self.ingredients(resolution, mode)
        shared = self.shared.by_name()

        def make() -> dict[str, Tensor]:
            return shared | self._norm_tensors(parts)

        if parts.blend or parts.statistics is not None:
            around = self._template.around_kernels(make())
        else:
            private = self.batch_norm(parts.lower)
            sources = [*shared.values(), *private.flat().values(), private.num_batches_tracked]
            around = self._template.remembered(parts.lower, sources, make)
        around = around | self._tempered_head(parts.encoding) if self.temperatures else around
        if out is None:
            return self._template.filled(around, self.meta_learner(parts.encoding))
        flat = self.meta_learner(parts.encoding, out.flat)
        return out.state_dict(parts.lower, around, flat, self._template.filled)


def _without_storage(module: nn.Module) -> nn.Module:
    skeleton = copy.deepcopy(module).to("meta")
    for name in constants(module):
        _set_buffer(skeleton, name, module.get_buffer(name).detach().clone())
    return skeleton


def _set_buffer(module: nn.Module, name: str, value: Tensor) -> None:
    owner, _, own_name = name.rpartition(".")
    setattr(module.get_submodule(owner), own_name, value)


class _SharedTensors(nn.Module):
    """The stock tensors that are the same for every resolution, under their stock names."""

    def __init__(self, module: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        parameters = dict(module.named_parameters())
        buffers = dict(module.named_buffers())
        self.names = names
        for name in names:
            if name in parameters:
                value = parameters[name].detach()
                own = nn.Parameter(torch.empty_like(value, device="cpu"))
                if not value.is_meta:
                    own.data.copy_(value)
                self.register_parameter(_escape(name), own)
            else:
                value = buffers[name].detach()
                copied = torch.zeros_like(value, device="cpu") if value.is_meta else value.clone()
                self.register_buffer(_escape(name), copied)

    def by_name(self) -> dict[str, Tensor]:
        return {name: getattr(self, _escape(name)) for name in self.names}


def _escape(name: str) -> str:
    return name.replace(".", "/")  # torch forbids dots in the names of tensors
