"""The processes of a run: one alone, or those that torchrun started."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from training.errors import RecipeError


@dataclass(frozen=True)
class Group:
    """Which process of the run this is."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Overwrite a tensor with the main process's, in place."""
        if self.size > 1:
            dist.broadcast(tensor, src=0)
        return tensor

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            dist.barrier()


def local_processes() -> int:
    """Return how many processes of this run share this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def choose_device(wanted: str) -> torch.device:
    """Turn "auto", "cpu", "cuda" or "cuda:N" into this process's device."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda":
        wanted = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise RecipeError(f"--device {wanted} is none; use auto, cpu, cuda or cuda:N.") from error
    if device.type not in ("cpu", "cuda"):
        raise RecipeError(f"--device {wanted} is not supported; use auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise RecipeError(
            f"--device {wanted} is not there: torch sees {torch.cuda.device_count()} GPUs. "
            "Use --device cpu, or install the driver and a torch for CUDA."
        )
    return device


@contextlib.contextmanager
def joined_group(device: str) -> Iterator[Group]:
    """Join the processes that torchrun started (NCCL on CUDA, else gloo), or be alone."""
    chosen = choose_device(device)
    if "WORLD_SIZE" not in os.environ:
        yield Group(0, 1, chosen)
        return
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Group(dist.get_rank(), dist.get_world_size(), chosen)
    finally:
        dist.destroy_process_group()
