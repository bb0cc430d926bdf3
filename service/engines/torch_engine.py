"""The torch engine: runs everywhere, and is ready for a new resolution in milliseconds.

On a CPU the folded network runs eagerly in channels_last. On CUDA it runs in half precision as well
and as graphs (`cuda_graphs`), with the meta network on the device so that generation happens there.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from san_core.bundle import Bundle
from san_core.folding import FoldedArchitecture
from san_core.frontier import OperatingPoint
from service.engines.base import RunnableNetwork, batch_sizes
from service.engines.cuda_device import CudaDevice
from service.engines.cuda_graphs import GraphDevice, GraphedNetwork, Staging
from service.errors import EngineUnavailableError


@dataclass(frozen=True)
class TorchNetwork:
    """A folded main network on a CPU."""

    point: OperatingPoint
    memory_bytes: int
    module: nn.Module
    weights: dict[str, Tensor]

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Run a batch [n, T, T, 3] and return logits [n, classes]."""
        with torch.inference_mode():
            # A view: NHWC memory seen as NCHW is exactly channels_last.
            images = torch.from_numpy(batch).permute(0, 3, 1, 2)
            logits: Tensor = functional_call(self.module, self.weights, (images,))
            result: NDArray[np.float32] = logits.numpy()
        return result


class TorchEngine:
    """Generates, folds and runs main networks with torch."""

    name = "torch"
    precisions: tuple[str, ...] = ("float",)

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int,
        max_batch: int,
        device: str,
        graphs: GraphDevice | None = None,
    ) -> None:
        """Move the meta network to the device; `graphs` is CUDA itself unless a test says more."""
        self._device = resolve_device(device)
        self._threads = threads
        self._sizes = batch_sizes(max_batch)
        if graphs is None and self._device.type == "cuda":
            graphs = CudaDevice(self._device)
        self._graphs = graphs
        if graphs is None:
            torch.set_num_threads(threads)
        else:
            self._device = graphs.device
            self._staging = Staging(graphs)
        self._dtype = torch.float32 if graphs is None else graphs.dtype
        with nullcontext() if graphs is None else graphs.building():
            self._network = bundle.network.to(self._device)
        self._folded = FoldedArchitecture(bundle.network.skeleton)
        self._fallback: str | None = None

    @property
    def device(self) -> str:
        """Where it runs."""
        return str(self._device)

    def describe(self) -> dict[str, str]:
        """Facts for `/version` and the log."""
        facts = {
            "library": f"torch {torch.__version__}",
            "isa": torch.backends.cpu.get_cpu_capability(),
            "threads": str(self._threads),
            "dtype": str(self._dtype).removeprefix("torch."),
        }
        if self._graphs is not None:
            sizes = ", ".join(str(size) for size in self._sizes)
            pool, pinned = self._graphs.pool_bytes(), self._staging.bytes
            facts |= self._graphs.describe()
            facts["graphs"] = self._fallback or f"for batches of {sizes}"
            facts["graph_memory"] = f"{pool / 1e6:.1f} MB shared, {pinned / 1e6:.1f} MB pinned"
        return facts

    def build(self, point: OperatingPoint) -> RunnableNetwork:
        """Generate and fold the weights of a point; on CUDA, capture its graphs too."""
        if self._graphs is not None:
            return self._build_graphs(point, self._graphs)
        with torch.inference_mode():
            weights = self._weights(point)
        size = sum(t.numel() * t.element_size() for t in weights.values())
        return TorchNetwork(point, size, self._folded.module, weights)

    def close(self) -> None:
        """Nothing to release beyond what the garbage collector does."""

    def _build_graphs(self, point: OperatingPoint, graphs: GraphDevice) -> GraphedNetwork:
        with torch.inference_mode(), graphs.building():
            # A module of its own: what a graph has recorded are the addresses of these tensors.
            module = copy.deepcopy(self._folded.module)
            module.load_state_dict(self._weights(point, copy=True), assign=True)
            network = GraphedNetwork(point, module, graphs, self._staging, self._sizes)
        self._fallback = network.fallback or self._fallback
        return network

    def _weights(self, point: OperatingPoint, *, copy: bool = False) -> dict[str, Tensor]:
        folded = self._folded.generate(self._network, point.resolution, point.mode)
        return {name: self._laid_out(tensor, copy=copy) for name, tensor in folded.items()}

    def _laid_out(self, tensor: Tensor, *, copy: bool) -> Tensor:
        if not tensor.is_floating_point():
            return tensor.to(self._device, copy=copy)
        layout = torch.channels_last if tensor.dim() == 4 else torch.contiguous_format
        return tensor.to(self._device, self._dtype, memory_format=layout, copy=copy)


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
