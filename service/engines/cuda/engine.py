"""The torch engine on a GPU: the one meta network lives there and generates there.

Networks run in half precision and as graphs (`graphs.py`). A cold point answers as soon as the
graph of one image is captured; those of batches follow behind.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call

from san_core.bundle import Bundle
from san_core.frontier import OperatingPoint
from san_core.main_network.folding import FoldedArchitecture
from san_core.network.cost import Cost, cost
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from service.engines.base import EngineTraits, batch_sizes
from service.engines.cuda.device import CudaDevice
from service.engines.cuda.device_errors import translated
from service.engines.cuda.graphs import GraphBody, GraphDevice, GraphedNetwork, GraphFacts
from service.engines.cuda.pinned_ring import PinnedRing
from service.engines.cuda.self_test import TOLERANCE, disagreement, is_finite, sample_images
from service.engines.normalising import Normalise
from service.engines.torch_engine import laid_out, resolve_device
from service.errors import EngineLostError, EngineUnavailableError, NotFiniteError

IN_FLIGHT = 2
"""Batches: while one computes, the next is copied."""
_ROOM = 0.6
"""The share of free memory that ready networks may take; graphs, libraries and pixels need some."""
_OLDEST_TORCH = "2.12"
"""Earlier ones capture nothing more after a capture that CUDA broke off, and cannot tell what a
pool holds."""


class CudaEngine:
    """Generates, folds, captures and runs main networks on a GPU."""

    name = "torch"
    precisions: tuple[str, ...] = ("float",)
    traits = EngineTraits(in_flight=IN_FLIGHT, pads=True)

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
        del threads  # the host only copies: a team of threads would spin beside the decoders
        torch.set_num_threads(1)
        self.facts = GraphFacts()
        self.lost: EngineLostError | None = None
        """Why the device will not run again."""
        self._sizes = batch_sizes(max_batch)
        self._order = Lock()
        self._bodies: WeakValueDictionary[tuple[int, torch.dtype], GraphBody] = (
            WeakValueDictionary()
        )
        self._fallback: str | None = None
        self._full_precision: set[int] = set()
        """Resolutions that half precision is too coarse for."""
        self._graphs = graphs or _open(device)
        with self._telling():
            self._ring = PinnedRing(self._graphs, IN_FLIGHT)
            with self._graphs.building():
                network = bundle.network.to(self._graphs.device)
            self._network: ScaleAdaptiveNetwork | None = network
        self._folded = FoldedArchitecture(network.skeleton)
        self._norms = {
            name for name, m in self._folded.module.named_modules() if isinstance(m, nn.BatchNorm2d)
        }
        preprocessing = bundle.manifest.preprocessing
        self._normalise = {
            dtype: Normalise(preprocessing, self._graphs.device, dtype)
            for dtype in {self._graphs.dtype, torch.float32}
        }

    @property
    def device(self) -> str:
        """Where it runs."""
        return str(self._graphs.device)

    def describe(self) -> dict[str, str]:
        """Facts for `/version` and the log."""
        sizes = ", ".join(str(size) for size in self._sizes)
        dtype = str(self._graphs.dtype).removeprefix("torch.")
        if self._full_precision:
            sides = ", ".join(map(str, sorted(self._full_precision)))
            dtype += f"; float32 at {sides} px, where half precision is too coarse"
        return {
            "library": f"torch {torch.__version__}",
            "dtype": dtype,
            "graphs": self._fallback or f"for batches of {sizes}",
            **self._graphs.describe(),
        }

    def metrics(self) -> dict[str, float]:
        """Numbers for the exporter."""
        facts = self.facts
        found = {
            "captures": facts.captures,
            "padded_rows": facts.padding,
            "images": facts.images,
            "weight_switches": facts.switches,
            "pinned_bytes": self._ring.pinned_bytes,
            "lost": int(self.lost is not None),
            **{f"replays_{size}": facts.replays[size] for size in self._sizes},
        }
        with suppress(EngineLostError), self._telling():
            memory = self._graphs.memory()
            found |= {f"memory_{name}_bytes": value for name, value in vars(memory).items()}
        return {name: float(value) for name, value in found.items()}

    def room_bytes(self) -> int:
        """How many bytes further networks may occupy."""
        with suppress(EngineLostError), self._telling():
            return int(_ROOM * self._graphs.memory().free)
        return 0

    def build(self, point: OperatingPoint) -> GraphedNetwork:
        """Generate and fold the weights of a point; capture its resolution unless that is done."""
        with self._telling(), torch.inference_mode(), self._graphs.building():
            dtype, weights = self._generated(point)
            key = (point.resolution, dtype)
            body = self._bodies.get(key)
            if body is None:
                body = self._bodies[key] = self._embody(point, weights, dtype)
                self._fallback = body.fallback or self._fallback
            side, classes = point.resolution, body.output.shape[1]
            image = side * side * 3
            # One image of floats fits in any case.
            self._ring.reserve(max(self._sizes[-1], 4) * image, self._sizes[-1] * classes)
            return GraphedNetwork(
                point,
                weights,
                body,
                self._graphs,
                self._ring,
                self._order,
                self._finish,
                self.told,
            )

    def _finish(self, body: GraphBody) -> None:
        with self._telling(), torch.inference_mode(), self._graphs.building():
            if self._network is None:
                return  # closed: graphs would keep memory that was given back
            body.finish()
            self._fallback = body.fallback or self._fallback

    def cost(self, resolution: int, precision: str) -> Cost:
        """What one image costs."""
        del precision  # there is one
        return cost(self._meta(), resolution)

    def _meta(self) -> ScaleAdaptiveNetwork:
        if self._network is None:
            raise EngineUnavailableError("This engine is closed.")
        return self._network

    def _generated(self, point: OperatingPoint) -> tuple[torch.dtype, dict[str, Tensor]]:
        """The weights of a point in the precision that it runs in; inside `building`."""
        folded = self._folded.generate(self._meta(), point.resolution, point.mode)
        dtype = self._graphs.dtype
        if dtype == torch.float32:
            return dtype, self._typed(folded, dtype)
        exact, half = self._typed(folded, torch.float32), self._typed(folded, dtype)
        images = torch.from_numpy(sample_images(point.resolution)).to(self._graphs.device)
        expected = self._computed(images, exact, torch.float32)
        if not is_finite(expected):
            raise NotFiniteError(f"{point} computes something that is not a number.")
        if disagreement(self._computed(images, half, dtype), expected) <= TOLERANCE:
            return dtype, half
        self._full_precision.add(point.resolution)
        return torch.float32, exact

    def _computed(self, images: Tensor, weights: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
        normal = self._normalise[dtype](images)
        logits: Tensor = functional_call(self._with_constants(dtype), weights, (normal,))
        return logits

    def _typed(self, folded: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
        """Batch norms that were not folded stay in float32: variances overflow half precision."""
        return {
            name: laid_out(
                tensor,
                torch.float32 if name.rpartition(".")[0] in self._norms else dtype,
                copy=True,
            ).to(self._graphs.device)
            for name, tensor in folded.items()
        }

    def _with_constants(self, dtype: torch.dtype) -> nn.Module:
        """The architecture, with the buffers that no state dict has in a network's precision."""
        module = copy.deepcopy(self._folded.module)
        kept = set(module.state_dict())
        for name, buffer in list(module.named_buffers()):
            if name not in kept and buffer.is_floating_point() and not buffer.is_meta:
                owner, _, leaf = name.rpartition(".")
                cast = buffer.to(self._graphs.device, dtype)
                module.get_submodule(owner).register_buffer(leaf, cast, persistent=False)
        return module

    def _embody(
        self, point: OperatingPoint, weights: dict[str, Tensor], dtype: torch.dtype
    ) -> GraphBody:
        # A module of its own: what a graph has recorded are the addresses of these tensors.
        module = self._with_constants(dtype)
        own = {name: tensor.clone() for name, tensor in weights.items()}
        module.load_state_dict(own, assign=True)
        normalise = self._normalise[dtype]
        return GraphBody(point.resolution, module, normalise, self._graphs, self._sizes, self.facts)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        if self.lost is not None:
            raise self.lost
        try:
            yield
        except BaseException as error:
            told = self.told(error)
            if told is error:
                raise
            raise told from error

    def told(self, error: BaseException) -> BaseException:
        """An error of the device as the service tells it; remembers that the device is lost."""
        meant = translated(error)
        if isinstance(meant, EngineLostError):
            self.lost = self.lost or meant
        elif meant is not error:
            self._graphs.release()
        return meant

    def close(self) -> None:
        """Let go of the meta network, the buffers and the device's memory."""
        self._network = None
        self._bodies.clear()
        self._ring = PinnedRing(self._graphs, IN_FLIGHT)
        self._graphs.close()


def _open(device: str) -> CudaDevice:
    found = resolve_device(device)
    if found.type != "cuda":
        raise EngineUnavailableError(f"There is no CUDA device here: {device} is a {found.type}.")
    if torch.__version__ < _OLDEST_TORCH:  # compared as versions, not as strings
        raise EngineUnavailableError(
            f"{device} cannot be used: that takes torch {_OLDEST_TORCH} or later, and this is "
            f"{torch.__version__}."
        )
    return CudaDevice(found)
