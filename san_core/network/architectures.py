"""Stock CNNs by name, and what of them a meta network replaces.

"resnet18" is torchvision's, "timm:NAME" is timm's. No backbone is written a second time here.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torchvision
from torch import nn

from san_core.errors import ArchitectureError
from san_core.network.network_config import KernelSlot, NormSlot

FIRST_CLASS = ("resnet18", "resnet34", "resnet50", "resnext50_32x4d", "mobilenet_v2")

# torchvision's inception-like networks carry auxiliary heads that inference never uses.
_WITHOUT_AUXILIARY = {"googlenet": {"init_weights": False}, "inception_v3": {"init_weights": False}}


def build(name: str, num_classes: int = 1000, device: str | torch.device = "cpu") -> nn.Module:
    """Build a stock CNN, freshly initialised (or without storage on the "meta" device)."""
    try:
        return _build(name, num_classes, device)
    except NotImplementedError:  # RegNet computes its widths with tensors, which "meta" cannot
        return _build(name, num_classes, "cpu").to(device)


def _build(name: str, num_classes: int, device: str | torch.device) -> nn.Module:
    with torch.device(device):
        if name.startswith("timm:"):
            return _build_timm(name.removeprefix("timm:"), num_classes)
        if name not in torchvision.models.list_models(module=torchvision.models):
            raise ArchitectureError(
                f"Unknown architecture {name!r}. Use a torchvision classification model such as "
                f"{', '.join(FIRST_CLASS)}, or 'timm:NAME' for one of timm's."
            )
        options = _WITHOUT_AUXILIARY.get(name)
        module: nn.Module = torchvision.models.get_model(
            name, weights=None, num_classes=num_classes, **(options or {})
        )
    if options is not None:
        for attribute in ("aux1", "aux2", "AuxLogits"):
            if hasattr(module, attribute):
                setattr(module, attribute, None)
        module.__dict__["aux_logits"] = False
    return module


def _build_timm(name: str, num_classes: int) -> nn.Module:
    import timm  # heavy, and only wanted for these names

    if not timm.is_model(name):
        raise ArchitectureError(f"timm {timm.__version__} has no model named {name!r}.")
    model: nn.Module = timm.create_model(name, pretrained=False, num_classes=num_classes)
    return model


@dataclass(frozen=True)
class Anatomy:
    """What a lift replaces in a stock CNN; all other tensors of its state dict are shared."""

    kernels: tuple[KernelSlot, ...]
    norms: tuple[NormSlot, ...]
    shared: tuple[str, ...]


def constants(module: nn.Module) -> tuple[str, ...]:
    """Name the buffers that no state dict carries, e.g. the filters of anti-aliased pooling."""
    kept = module.state_dict(keep_vars=True).keys()
    return tuple(name for name, _ in module.named_buffers() if name not in kept)


def _tensor_names(module: nn.Module) -> Iterator[str]:
    fixed = constants(module)
    for name, _ in module.named_parameters():
        yield name
    for name, _ in module.named_buffers():
        if name not in fixed:
            yield name


def dissect(module: nn.Module, *, generate_stem: bool = True) -> Anatomy:
    """Find the convolutions, BN layers and shared tensors of a stock CNN.

    With `generate_stem=False` the first convolution stays an ordinary shared one, as in the paper's
    published ResNets.
    """
    label = type(module).__name__
    for name, layer in module.named_modules():
        unusable = _why_unusable(layer)
        if unusable:
            raise ArchitectureError(f"{label} cannot be lifted: layer {name!r} {unusable}.")
    convolutions = [(n, m) for n, m in module.named_modules() if isinstance(m, nn.Conv2d)]
    norms = tuple(
        NormSlot(n, m.num_features)
        for n, m in module.named_modules()
        if isinstance(m, nn.BatchNorm2d)
    )
    if not convolutions:
        raise ArchitectureError(f"{label} cannot be lifted: it has no Conv2d layer.")
    if not norms:
        raise ArchitectureError(
            f"{label} cannot be lifted: it has no BatchNorm2d layer, and private batch norm is "
            "what tells its main networks' activations apart. Use a variant with batch norm."
        )
    generated = convolutions if generate_stem else convolutions[1:]
    kernels = tuple(KernelSlot(n, tuple(m.weight.shape), m.groups) for n, m in generated)
    taken = {f"{k.name}.weight" for k in kernels}
    norm_names = {n.name for n in norms}
    shared = tuple(
        name
        for name in _tensor_names(module)
        if name not in taken and name.rpartition(".")[0] not in norm_names
    )
    return Anatomy(kernels, norms, shared)


def _why_unusable(layer: nn.Module) -> str:
    if isinstance(layer, nn.BatchNorm2d):
        if not layer.affine:
            return "is a BatchNorm2d without scale and shift"
        if not layer.track_running_stats:
            return "is a BatchNorm2d that keeps no statistics"
    elif isinstance(layer, (nn.Conv1d, nn.Conv3d, nn.ConvTranspose2d)):
        return f"is a {type(layer).__name__}, and only Conv2d kernels are generated"
    elif isinstance(layer, nn.MultiheadAttention):
        return "is attention, whose weights do not depend on the scale as kernels do"
    return ""
