"""Reading checkpoints of the paper's published code into a `ScaleAdaptiveNetwork`.

There `fcN` is the meta learner of the N-th convolution of a block, a Linear(1, out*in*k*k);
`bnN.bn_i` the private BN of the i-th trained resolution, the largest first; the ResNets' stem is an
ordinary shared convolution, and their `downsample.*` is dead weight.
"""

import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from san_core.errors import OfficialCheckpointError
from san_core.network.meta_learner import LinearMetaLearner
from san_core.network.network_config import NetworkConfig
from san_core.network.private_batch_norm import AFFINE, STATISTICS
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork

OFFICIAL_RESOLUTIONS = (224, 192, 160, 128, 96)
ARCHITECTURES = ("resnet18", "resnet50", "mobilenet_v2")

_DEAD = re.compile(r"layer\d+\.\d+\.downsample\.")


def read_official(path: Path | str, architecture: str) -> ScaleAdaptiveNetwork:
    """Read an official checkpoint; every tensor of it must find its place, and none may lack."""
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise OfficialCheckpointError(
            f"Unknown official architecture {architecture!r}: use {known}."
        )
    return from_official(_read_state_dict(Path(path)), architecture)


_SAVED_BY_TORCH = (b"PK", b"\x80\x02")
"""How a file of torch.save begins: a zip archive or, of old, a pickle."""


def _begins(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(2)


def unreadable_weights(path: Path, error: Exception) -> str:
    """Why a file that should hold weights could not be read, in a sentence with the cure.

    Torch's own message is about torch, not about the file.
    """
    cure = "Save model.state_dict() with safetensors or torch.save, and nothing else with it."
    if path.is_dir():
        return f"{path} is a folder; name the file of weights in it."
    refused = isinstance(error, pickle.UnpicklingError) and "weights_only" in str(error)
    if refused and _begins(path) in _SAVED_BY_TORCH:
        return f"{path} holds a pickled module, not a state dict; that is never loaded. {cure}"
    if isinstance(error, OSError) and error.strerror:
        return f"{path} cannot be read: {error.strerror}."
    return f"{path} is no file of weights, or it is damaged. {cure}"


def _read_state_dict(path: Path) -> dict[str, Tensor]:
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise OfficialCheckpointError(f"There is no file {path}.") from error
    except Exception as error:  # torch.load raises many kinds on foreign files
        raise OfficialCheckpointError(unreadable_weights(path, error)) from error
    state = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else None
    if not state or not all(isinstance(value, Tensor) for value in state.values()):
        raise OfficialCheckpointError(f"{path} holds no state dict of tensors.")
    return dict(state)


def from_official(state: dict[str, Tensor], architecture: str) -> ScaleAdaptiveNetwork:
    """Turn an official state dict into a network."""
    state = {name.removeprefix("module."): tensor for name, tensor in state.items()}
    state = {name: tensor for name, tensor in state.items() if not _DEAD.match(name)}
    resnet = architecture.startswith("resnet")
    head = "fc" if resnet else "classifier"
    stock_head = "fc" if resnet else "classifier.1"
    classes = state.get(f"{head}.module.bias", torch.empty(1000)).numel()
    config = NetworkConfig(architecture, OFFICIAL_RESOLUTIONS, classes, generate_stem=not resnet)
    network = ScaleAdaptiveNetwork(config, initialisation=None)

    layers = dict(_layers(network.skeleton, architecture))  # stock name -> official name
    taken: dict[str, Tensor] = {}
    missing: list[str] = []

    def take(name: str, shape: torch.Size | tuple[int, ...]) -> Tensor:
        found = state.get(name)
        if found is None:
            missing.append(name)
            return torch.zeros(shape)
        taken[name] = found
        if found.numel() != torch.Size(shape).numel():
            raise OfficialCheckpointError(
                f"{name} has shape {tuple(found.shape)}; {architecture} needs {tuple(shape)}."
            )
        return found.detach().float().reshape(shape)

    learner = network.meta_learner
    assert isinstance(learner, LinearMetaLearner)
    with torch.no_grad():
        for flat, kind in ((learner.weight, "weight"), (learner.bias, "bias")):
            sizes = [slot.numel for slot in network.kernels]
            for slot, part in zip(network.kernels, flat.split_with_sizes(sizes), strict=True):
                part.copy_(take(f"{layers[slot.name]}.{kind}", (slot.numel,)))
        for index, resolution in enumerate(OFFICIAL_RESOLUTIONS):
            private = network.batch_norm(resolution)
            sizes = [slot.channels for slot in network.norms]
            for kind in AFFINE + STATISTICS:
                parts = getattr(private, kind).split_with_sizes(sizes)
                for norm, part in zip(network.norms, parts, strict=True):
                    part.copy_(take(f"{layers[norm.name]}.bn_{index}.{kind}", part.shape))
        shared = network.shared.by_name()
        if resnet:
            shared["conv1.weight"].copy_(take("conv1.module.weight", shared["conv1.weight"].shape))
        for kind in AFFINE:
            tensor = shared[f"{stock_head}.{kind}"]
            tensor.copy_(take(f"{head}.module.{kind}", tensor.shape))
    unknown = [n for n in state if n not in taken and not n.endswith("num_batches_tracked")]
    if missing or unknown:
        raise OfficialCheckpointError(
            f"Not an official {architecture} checkpoint. Missing: {', '.join(missing) or 'none'}. "
            f"Unknown: {', '.join(unknown) or 'none'}."
        )
    return network.eval()


def _layers(skeleton: nn.Module, architecture: str) -> Iterator[tuple[str, str]]:
    """Yield (stock name, official name) of every convolution and BN layer."""
    if architecture == "mobilenet_v2":
        yield from _mobilenet_layers(skeleton)
    else:
        yield from _resnet_layers(skeleton)


def _resnet_layers(skeleton: nn.Module) -> Iterator[tuple[str, str]]:
    yield "conv1", "conv1.module"
    yield "bn1", "bn1"
    # The skip connection takes the number after the block's last convolution.
    skip = 4 if any(name.endswith("conv3") for name, _ in skeleton.named_modules()) else 3
    for name, layer in skeleton.named_modules():
        block, _, last = name.rpartition(".")
        if not block.startswith("layer"):
            continue
        if block.endswith("downsample"):
            block = block.removesuffix(".downsample")
            yield name, f"{block}.fc{skip}" if isinstance(layer, nn.Conv2d) else f"{block}.bn{skip}"
        elif last.startswith("conv"):
            yield name, f"{block}.fc{last.removeprefix('conv')}"
        elif last.startswith("bn"):
            yield name, name


def _mobilenet_layers(skeleton: nn.Module) -> Iterator[tuple[str, str]]:
    features = skeleton.get_submodule("features")
    last = len(list(features.children())) - 1
    for index, block in enumerate(features.children()):
        convolutions = [n for n, m in block.named_modules() if isinstance(m, nn.Conv2d)]
        norms = [n for n, m in block.named_modules() if isinstance(m, nn.BatchNorm2d)]
        official = "conv" if index == last else f"features.{index}"
        numbered = index not in (0, last)
        for number, (convolution, norm) in enumerate(zip(convolutions, norms, strict=True), 1):
            suffix = str(number) if numbered else ""
            yield f"features.{index}.{convolution}", f"{official}.fc{suffix}"
            yield f"features.{index}.{norm}", f"{official}.bn{suffix}"
