"""The torch engine on a CPU: runs everywhere, and is ready for a new resolution in milliseconds.

The folded network runs eagerly in channels_last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from san_core.bundle import Bundle
from san_core.frontier import OperatingPoint
from san_core.main_network.folding import FoldedArchitecture
from san_core.network.cost import Cost, cost
from service.engines.base import Images, RunnableNetwork, finite
from service.engines.normalising import Normalise, as_tensor
from service.errors import EngineUnavailableError


@dataclass(frozen=True)
class TorchNetwork:
    """A folded main network on a CPU."""

    point: OperatingPoint
    memory_bytes: int
    module: nn.Module
    weights: dict[str, Tensor]
    normalise: Normalise

    def run(self, images: Images) -> NDArray[np.float32]:
        """Run images [n, T, T, 3] and return logits [n, classes]."""
        with torch.inference_mode():
            normal = self.normalise(as_tensor(images))
            logits: Tensor = functional_call(self.module, self.weights, (normal,))
            result: NDArray[np.float32] = logits.numpy()
        return finite(result)

    def keep(self) -> None:
        """Nothing is kept."""

    def finish(self) -> None:
        """Nothing is left to do."""


class TorchEngine:
    """Generates, folds and runs main networks with torch on a CPU."""

    name = "torch"
    device = "cpu"
    precisions: tuple[str, ...] = ("float",)

    def __init__(self, bundle: Bundle, *, threads: int, max_batch: int, device: str) -> None:
        """Use the meta network where it is."""
        del max_batch  # any batch runs as it is
        if resolve_device(device).type != "cpu":
            raise EngineUnavailableError(f"This engine runs on the cpu, not on {device}.")
        self._threads = threads
        torch.set_num_threads(threads)
        self._network = bundle.network
        self._folded = FoldedArchitecture(bundle.network.skeleton)
        self._normalise = Normalise(
            bundle.manifest.preprocessing, torch.device("cpu"), torch.float32
        )

    def describe(self) -> dict[str, str]:
        """Facts for `/version` and the log."""
        return {
            "library": f"torch {torch.__version__}",
            "isa": torch.backends.cpu.get_cpu_capability(),
            "threads": str(self._threads),
            "dtype": "float32",
        }

    def build(self, point: OperatingPoint) -> RunnableNetwork:
        """Generate and fold the weights of a point."""
        with torch.inference_mode():
            folded = self._folded.generate(self._network, point.resolution, point.mode)
            weights = {name: laid_out(t, torch.float32) for name, t in folded.items()}
        size = sum(t.numel() * t.element_size() for t in weights.values())
        return TorchNetwork(point, size, self._folded.module, weights, self._normalise)

    def cost(self, resolution: int, precision: str) -> Cost:
        """What one image costs."""
        del precision  # there is one
        return cost(self._network, resolution)

    def close(self) -> None:
        """Nothing to release beyond what the garbage collector does."""


def laid_out(tensor: Tensor, dtype: torch.dtype, *, copy: bool = False) -> Tensor:
    """A weight in a network's precision; kernels in channels_last."""
    if not tensor.is_floating_point():
        return tensor.to(tensor.device, copy=copy)
    layout = torch.channels_last if tensor.dim() == 4 else torch.contiguous_format
    return tensor.to(dtype=dtype, memory_format=layout, copy=copy)


def resolve_device(device: str) -> torch.device:
    """`auto` is CUDA where there is one; a device that cannot be used is told why."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = torch.device(device)
    if found.type == "cuda":
        if torch.version.cuda is None:
            raise EngineUnavailableError(
                f"{device} cannot be used: this torch was built without CUDA; install a CUDA wheel "
                "or use --device cpu."
            )
        if not torch.cuda.is_available():
            raise EngineUnavailableError(
                f"{device} cannot be used: there is no CUDA device here, or its driver is too old "
                f"for CUDA {torch.version.cuda} (see nvidia-smi); use --device cpu."
            )
        if (found.index or 0) >= torch.cuda.device_count():
            raise EngineUnavailableError(
                f"{device} cannot be used: there are {torch.cuda.device_count()} CUDA devices, "
                "counted from cuda:0."
            )
    return found
