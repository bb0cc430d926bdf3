"""The torch engine: runs everywhere, and is ready for a new resolution in milliseconds.

On a CPU the folded network runs eagerly in channels_last; on CUDA in half precision as well, with
the meta network on the device so that generation happens there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from san_core.bundle import Bundle
from san_core.folding import FoldedArchitecture
from san_core.frontier import OperatingPoint
from service.engines.base import EngineUnavailableError


@dataclass(frozen=True)
class TorchNetwork:
    """A folded main network on a torch device."""

    point: OperatingPoint
    weight_bytes: int
    module: nn.Module
    weights: dict[str, Tensor]
    device: torch.device
    dtype: torch.dtype

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Run a batch [n, T, T, 3] and return logits [n, classes]."""
        with torch.inference_mode():
            # A view: NHWC memory seen as NCHW is exactly channels_last.
            images = torch.from_numpy(batch).permute(0, 3, 1, 2)
            images = images.to(self.device, self.dtype, memory_format=torch.channels_last)
            logits: Tensor = functional_call(self.module, self.weights, (images,))
            result: NDArray[np.float32] = logits.float().cpu().numpy()
        return result


class TorchEngine:
    """Generates, folds and runs main networks with torch."""

    name = "torch"
    precisions: tuple[str, ...] = ("float",)

    def __init__(self, bundle: Bundle, *, threads: int, max_batch: int, device: str) -> None:
        self._device = resolve_device(device)
        self._threads = threads
        self._max_batch = max_batch
        on_gpu = self._device.type == "cuda"
        self._dtype = torch.float16 if on_gpu else torch.float32
        if not on_gpu:
            torch.set_num_threads(threads)
        self._network = bundle.network.to(self._device)
        self._folded = FoldedArchitecture(bundle.network.skeleton)

    @property
    def device(self) -> str:
        """Where it runs."""
        return str(self._device)

    def describe(self) -> dict[str, str]:
        """Facts for `/version` and the log."""
        return {
            "library": f"torch {torch.__version__}",
            "isa": torch.backends.cpu.get_cpu_capability(),
            "threads": str(self._threads),
            "dtype": str(self._dtype).removeprefix("torch."),
        }

    def build(self, point: OperatingPoint) -> TorchNetwork:
        """Generate and fold the weights of a point."""
        with torch.inference_mode():
            folded = self._folded.fold(self._network.generate(point.resolution, point.mode))
            weights = {name: self._laid_out(tensor) for name, tensor in folded.items()}
        size = sum(t.numel() * t.element_size() for t in weights.values())
        return TorchNetwork(point, size, self._folded.module, weights, self._device, self._dtype)

    def close(self) -> None:
        """Nothing to release beyond what the garbage collector does."""

    def _laid_out(self, tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor.to(self._device)
        layout = torch.channels_last if tensor.dim() == 4 else torch.contiguous_format
        return tensor.to(self._device, self._dtype, memory_format=layout)


def resolve_device(device: str) -> torch.device:
    """`auto` is CUDA where there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = torch.device(device)
    if found.type == "cuda" and not torch.cuda.is_available():
        raise EngineUnavailableError(
            f"There is no CUDA device here: {device} cannot be used; try --device cpu."
        )
    return found
