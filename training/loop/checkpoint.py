"""A run's checkpoint: one safetensors file, tensors plus JSON, written atomically. Never pickle."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from san_core.atomic import replacing
from training.errors import CheckpointError

FILE_NAME = "checkpoint.safetensors"
_STATE = "san_training_state"


@dataclass
class Checkpoint:
    """All that continues a run exactly.

    Crops, order and dropout are functions of seed, epoch and step, so the position in `state` is
    also the state of every random generator.
    """

    tensors: dict[str, Tensor]
    state: dict[str, Any]

    def under(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors of one part, e.g. "network/", without the prefix."""
        return {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}


def write_atomically(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file; a crash, a full disk or Ctrl-C leaves the old one untouched."""
    try:
        with replacing(path, durable=True) as draft:
            save_file({k: v.detach().contiguous() for k, v in tensors.items()}, draft, metadata)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} could not be written: {error}.") from error


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint."""
    write_atomically(path, checkpoint.tensors, {_STATE: json.dumps(checkpoint.state)})


def load(path: Path) -> Checkpoint:
    """Read a checkpoint."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if _STATE not in metadata:
                raise CheckpointError(f"{path} is not a training checkpoint.")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} could not be read: {error}.") from error
    return Checkpoint(tensors, json.loads(metadata[_STATE]))


def read_state(path: Path) -> dict[str, Any]:
    """Read only the JSON part."""
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_STATE)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} could not be read: {error}.") from error
    if text is None:
        raise CheckpointError(f"{path} is not a training checkpoint.")
    state: dict[str, Any] = json.loads(text)
    return state


def module_tensors(module: nn.Module, prefix: str) -> dict[str, Tensor]:
    """Return a module's parameters and buffers under a prefix."""
    return {f"{prefix}{name}": tensor for name, tensor in module.state_dict().items()}


@torch.no_grad()
def restore_module(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors into a module in place."""
    own = module.state_dict()
    if own.keys() != tensors.keys():
        different = sorted(own.keys() ^ tensors.keys())
        raise CheckpointError(f"The checkpoint is of another network: {different[0]} differs.")
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]
) -> dict[str, Tensor]:
    """Return an optimizer's state under optimizer/KEY/PARAMETER."""
    return {
        f"optimizer/{key}/{names[parameter]}": value
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer,
    names: Mapping[Tensor, str],
    tensors: Mapping[str, Tensor],
) -> None:
    """Put back what `optimizer_tensors` returned, its prefix "optimizer/" taken off."""
    by_name = {name: parameter for parameter, name in names.items()}
    for path, value in tensors.items():
        key, _, name = path.partition("/")
        parameter = by_name[name]
        # A step counter stays on the CPU, as the optimizers keep it.
        device = parameter.device if value.shape == parameter.shape else value.device
        optimizer.state[parameter][key] = value.to(device)
