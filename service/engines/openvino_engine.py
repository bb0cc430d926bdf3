"""The OpenVINO engine: several times faster than eager torch on a CPU, at the price of compiling.

One template graph per architecture; a main network is a clone of it with the generated, BN-folded
tensors as constants, fixed to its resolution and compiled.
"""

from __future__ import annotations

import logging
import math
import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from san_core.folding import FoldedArchitecture
from san_core.quantization import quantised_resolutions, ranges_for
from service.engines.cpu_probe import CpuDecision, apply, probe
from service.engines.openvino_int8 import quantise
from service.errors import EngineUnavailableError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from san_core.bundle import Bundle
    from san_core.frontier import OperatingPoint

_log = logging.getLogger(__name__)

_LIBRARIES = ("openvino", "torch", "torchvision", "timm")
"""Whatever has a say in a template's graph."""


_VALUE = {"float": 4, "int8": 1}
"""Bytes of a value in a feature map."""

_LARGE, _FEW = 2_000_000, 4
"""From so many bytes of its largest feature map on, so many images of a batch run at a time: more
of them do not fit the caches."""

_PACKINGS = 3
_MAPS = {"float": 8.4, "int8": 4.8}
"""What a process was seen to grow by: so many times a network's weights, which are kept as they
came and packed for one image and for several, and per image so many bytes for every value of its
largest feature map."""

_SETTLED = 16
"""The largest batch that is tried out before a network counts as ready."""


def user_cache() -> Path:
    """Where decisions and templates are kept between starts: SAN_CACHE_DIR, or the user's cache."""
    if chosen := os.environ.get("SAN_CACHE_DIR"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "san-serve"


@dataclass(frozen=True)
class OpenVinoNetwork:
    """A compiled main network."""

    point: OperatingPoint
    memory_bytes: int
    single: Any
    """Request of the network compiled for one image: knowing the batch is worth a fifth."""
    several: Any
    """Request of the network compiled for several; None if there are only single images."""
    least: int
    most: int
    """How many those are."""

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Run a batch [n, T, T, 3] and return logits [n, classes]."""
        if len(batch) == 1:
            return _infer(self.single, batch)
        logits = []
        while left := len(batch):
            request, size = self.single, 1
            if self.several is not None and self.least <= left:
                request, size = self.several, min(left, self.most)
            logits.append(_infer(request, batch[:size]))
            batch = batch[size:]
        return np.concatenate(logits)


def _infer(request: Any, images: NDArray[np.float32]) -> NDArray[np.float32]:
    from openvino import Tensor

    request.set_input_tensor(Tensor(images, shared_memory=True))
    request.infer()
    logits: NDArray[np.float32] = request.get_output_tensor().data.copy()
    return logits


class OpenVinoEngine:
    """Generates, compiles and runs main networks of one bundle with OpenVINO on the CPU."""

    name = "openvino"
    device = "cpu"

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int,
        max_batch: int,
        device: str = "cpu",
        decision: CpuDecision | None = None,
        bf16: bool = False,
        cache_dir: Path | None = None,
    ) -> None:
        """Probe the CPU, unless there is a `decision`, and make or read the template.

        `bf16` lets float points run in bfloat16 where the probe found that worthwhile: nearly
        always the same class, but not the float32 that their accuracy was measured in.
        """
        if device not in ("cpu", "auto"):
            raise EngineUnavailableError(f"OpenVINO runs on the cpu here, not on {device}.")
        cache_dir = cache_dir or user_cache()
        self._decision = decision or _probe(cache_dir)
        if not self._decision.usable:
            raise EngineUnavailableError(
                f"OpenVINO does not run here ({self._decision.reason}); use the torch engine."
            )
        apply(self._decision)
        try:
            import openvino as ov

            from service.engines.openvino_template import Template
        except ImportError as error:
            raise EngineUnavailableError(f"OpenVINO cannot be loaded: {error}.") from error
        self._float = self._decision.precision if bf16 else "f32"
        self._core = ov.Core()
        _rouse(self._core, threads)
        self._bundle = bundle
        self._threads = threads
        self._max_batch = max_batch
        self._folded = FoldedArchitecture(bundle.network.skeleton)
        config = bundle.network.config
        key = f"{config.architecture} {config.num_classes} {_versions()}"
        self._template = Template.cached(self._folded.module, cache_dir, key)

    @property
    def precisions(self) -> tuple[str, ...]:
        """What `build` accepts: int8 too, if the bundle was quantised and the CPU computes it."""
        trained = set(self._bundle.network.resolutions)
        if self._decision.int8 and trained <= set(quantised_resolutions(self._bundle.extras)):
            return ("float", "int8")
        return ("float",)

    def describe(self) -> dict[str, str]:
        """Facts for `/version` and the log."""
        return {
            "library": f"openvino {version('openvino')}",
            "isa": self._decision.isa or "no limit",
            "threads": str(self._threads),
            "float": self._float,
            "reason": self._decision.reason,
        }

    def build(self, point: OperatingPoint) -> OpenVinoNetwork:
        """Generate the weights of a point, fold them, put them into the template and compile it."""
        network = self._bundle.network
        tensors = self._folded.generate(network, point.resolution, point.mode)
        weights = sum(t.nbytes for t in tensors.values() if t.is_floating_point())
        graph = self._template.fill(tensors)
        if point.precision == "int8":
            self._check_int8(point)
            ranges = ranges_for(network, self._bundle.extras, point.resolution, point.mode)
            weights -= quantise(graph, tensors, ranges)
        single = self._compile(graph, (1, 1), point.resolution)
        largest = _largest_map(graph)
        least, most = 2, self._max_batch
        if _VALUE[point.precision] * largest > _LARGE:
            least = most = min(_FEW, most)
        several = self._compile(graph, (least, most), point.resolution) if most > 1 else None
        memory = round(_PACKINGS * weights + (1 + most) * _MAPS[point.precision] * largest)
        return self._settled(OpenVinoNetwork(point, memory, single, several, least, most))

    def _settled(self, network: OpenVinoNetwork) -> OpenVinoNetwork:
        """Run each batch size once: the first time it costs several runs, and memory."""
        side = network.point.resolution
        most = min(network.most, _SETTLED)
        images = np.zeros((most, side, side, 3), dtype=np.float32)
        for size in range(most, 0, -1):
            network.run(images[:size])
        return network

    def close(self) -> None:
        """Nothing to release beyond what the garbage collector does."""

    def _check_int8(self, point: OperatingPoint) -> None:
        if "int8" not in self.precisions:
            raise EngineUnavailableError(
                f"{point.resolution} cannot run in int8: the bundle was not quantised (see "
                "'san quantize'), or this CPU does not compute it."
            )

    def _compile(self, graph: Any, batch: tuple[int, int], resolution: int) -> Any:
        """Fix the graph's shape, and compile it to one stream on this engine's share of the cores.

        Unpinned: two processes that pin their threads land on the same core.
        """
        graph.reshape([batch, resolution, resolution, 3])
        properties = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": self._threads,
            "ENABLE_CPU_PINNING": False,
            "INFERENCE_PRECISION_HINT": self._float,
        }
        compiled = self._core.compile_model(graph, "CPU", properties)
        return compiled.create_infer_request()


def _rouse(core: Any, threads: int) -> None:
    """Have this thread start the library's own threads.

    They are as nice as who first needs them, for good: not for a builder to do.
    """
    import openvino as ov
    from openvino import opset13 as ops

    entry = ops.parameter([1, 64, 64, 64], np.float32)
    properties = {"NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads}
    compiled = core.compile_model(ov.Model([ops.relu(entry)], [entry]), "CPU", properties)
    compiled.create_infer_request().infer([np.zeros((1, 64, 64, 64), np.float32)])


def _largest_map(graph: Any) -> int:
    """Values in the largest feature map of one image; the graph must be shaped for one."""
    shapes: list[list[int]] = [
        list(op.get_output_shape(0)) for op in graph.get_ops() if op.get_output_size()
    ]
    return max(math.prod(shape) for shape in shapes if len(shape) == 4 and shape[0] == 1)


def _probe(cache_dir: Path) -> CpuDecision:
    try:
        return probe(cache_dir)
    except PackageNotFoundError as error:
        raise EngineUnavailableError("OpenVINO is not installed.") from error


def _versions() -> str:
    found = [f"{name} {version(name)}" for name in _LIBRARIES]
    return f"{', '.join(found)} {platform.machine()}"
