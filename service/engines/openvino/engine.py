"""The OpenVINO engine: several times faster than eager torch on a CPU, at the price of compiling.

One template graph per architecture; a main network is a clone of it with the generated, BN-folded
tensors as constants, fixed to its resolution and compiled. What was compiled is kept on disk: the
next process reads it, and neither generates nor compiles. No torch is needed for any of it.
"""

from __future__ import annotations

import json
import logging
import math
import platform
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from san_core.main_network.blueprint import MainNetworks
from san_core.main_network.quantization import (
    corrected_biases,
    quantised_resolutions,
    ranges_for,
    rounded_kernels,
)
from san_core.mode import Mode
from san_core.network.cost import Cost
from service.engines.base import Images, finite
from service.engines.openvino.core import core
from service.engines.openvino.cpu_probe import CpuDecision, apply, probe
from service.engines.openvino.disk_cache import DiskCache, user_cache
from service.engines.openvino.int8 import quantise
from service.errors import EngineUnavailableError
from service.runtime.cores import cpu_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from san_core.bundle import Bundle
    from san_core.frontier import OperatingPoint
    from service.engines.openvino.template import Template

_log = logging.getLogger(__name__)

_VALUE = {"float": 4, "int8": 1}
"""Bytes of a value in a feature map."""

_CODE, _PACKINGS = 35_000_000, 3
_MAPS = {"float": 8.4, "int8": 4.8}
"""How much a process grows for a network, as measured: `_CODE` bytes of generated code; `_PACKINGS`
times the weights, which are kept as they came and packed by both compilations; and for each image
that runs at the same time `_MAPS` bytes per value of the largest feature map."""

_TRIALS = 9
"""Runs of one image by which the two ways to run it are compared; the shortest counts."""

_WORSE = 1.1
"""One image runs on one thread only if all threads take this many times as long. While another
process has one of the cores they are as slow as one thread; once it leaves they are twice as
fast."""

_FORM = "bytes in"
"""Of the compiled networks; another one must not be read as this one."""

_KEPT_BYTES = 600_000_000
"""Of compiled networks on disk: a frontier of each of two bundles."""


@dataclass
class OpenVinoNetwork:
    """A compiled main network.

    It is compiled twice. On all threads it runs one image after the other. With a stream for each
    thread the images of a batch run side by side: no thread waits for another layer by layer, which
    is what makes batches slow while decoders use the same cores.
    """

    point: OperatingPoint
    memory_bytes: int
    single: Any
    """A request of the network on all threads."""
    make_streams: Callable[[], Sequence[Any]] | None = None
    """Compiles the other one, once; None if there is one thread."""
    streams: Sequence[Any] = ()
    """A request for every image of a batch; none until it is compiled."""
    on_one_thread: bool = False
    """Whether that is faster for one image as well."""
    save: Callable[[], None] | None = None
    """Writes `single` to the disk; None if it was read from there, or written."""

    def keep(self) -> None:
        """Leave it on the disk for later processes."""
        if self.save is not None:
            self.save()
            self.save = None

    def finish(self) -> None:
        """Compile for batches, and see which way one image runs faster.

        The comparison is made again if others disturbed it. What clients pin is never finished, so
        it neither costs the disk nor takes the place of others there.
        """
        self.keep()
        if self.make_streams is not None:
            self.streams, self.make_streams = self.make_streams(), None
        if not self.streams:
            return
        side = self.point.resolution
        image = np.zeros((1, side, side, 3), dtype=np.uint8)
        # Requests of its own: an image may come meanwhile.
        ways = [
            known.get_compiled_model().create_infer_request()
            for known in (self.single, self.streams[0])
        ]
        times: tuple[list[float], list[float]] = [], []
        for _ in range(_TRIALS):
            for request, taken in zip(ways, times, strict=True):
                begun = time.perf_counter()
                _infer([request], image)
                taken.append(time.perf_counter() - begun)
        self.on_one_thread = min(times[0]) > _WORSE * min(times[1])

    def run(self, images: Images) -> NDArray[np.float32]:
        """Run images [n, T, T, 3] and return logits [n, classes]."""
        images = np.require(images, requirements=("C", "W"))  # tensors share its memory
        requests = self.streams
        if not requests or (len(images) == 1 and not self.on_one_thread):
            requests = [self.single]
        most = len(requests)
        parts = [_infer(requests, images[i : i + most]) for i in range(0, len(images), most)]
        return finite(parts[0] if len(parts) == 1 else np.concatenate(parts))


def _infer(requests: Sequence[Any], images: Images) -> NDArray[np.float32]:
    """Run one image per request, side by side."""
    from openvino import Tensor

    used = requests[: len(images)]
    for i, request in enumerate(used):
        request.set_input_tensor(Tensor(images[i : i + 1], shared_memory=True))
    if len(used) == 1:
        used[0].infer()  # on this thread: others would have to be woken first
    else:
        for request in used:
            request.start_async()
        for request in used:
            request.wait()
    return np.concatenate([request.get_output_tensor().data for request in used])


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
            self._core = core()
        except ImportError as error:
            raise EngineUnavailableError(f"OpenVINO cannot be loaded: {error}.") from error
        self._float = self._decision.precision if bf16 else "f32"
        _rouse(self._core, threads)
        self._bundle = bundle
        self._threads = threads
        self._max_batch = max_batch
        self._cache_dir = cache_dir
        self._kept = DiskCache(cache_dir, _KEPT_BYTES)
        self._lock = threading.Lock()

    @cached_property
    def _template(self) -> Template:
        from service.engines.openvino.template import Template

        return Template.find(self._bundle, self._cache_dir, _versions())

    @cached_property
    def _networks(self) -> MainNetworks:
        return MainNetworks(self._bundle, self._template.blueprint)

    @property
    def precisions(self) -> tuple[str, ...]:
        """What `build` accepts: int8 too, if the bundle was quantised and the CPU computes it."""
        trained = set(self._bundle.manifest.network.resolutions)
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
        """Make a point ready for single images: from the disk, or generated and compiled now."""
        if point.precision == "int8":
            self._check_int8(point)
        found = self._read(point, "single")
        compiled, memory = found or self._compiled(point, "single")
        network = OpenVinoNetwork(point, memory, compiled.create_infer_request())
        if found is None:
            network.save = partial(self._keep, point, "single", compiled, memory)
        if self._threads > 1:
            network.make_streams = partial(self._streams, point)
        side = point.resolution
        network.run(np.zeros((1, side, side, 3), dtype=np.uint8))  # the first costs several runs
        return network

    def _streams(self, point: OperatingPoint) -> Sequence[Any]:
        found = self._read(point, "streams")
        compiled, memory = found or self._compiled(point, "streams")
        if found is None:
            self._keep(point, "streams", compiled, memory)
        return [compiled.create_infer_request() for _ in range(self._max_batch)]

    def cost(self, resolution: int, precision: str) -> Cost:
        """What one image costs."""
        blueprint = self._template.blueprint
        return Cost(
            self._template.macs(resolution),
            blueprint.parameters,
            blueprint.weight_bytes - self._saved(resolution, precision),
        )

    def graph(self, point: OperatingPoint) -> Any:
        """The generated network of a point, its input of any size."""
        with self._lock:  # the parts are made once
            template, networks = self._template, self._networks
        tensors = networks.generate(point.resolution, point.mode)
        if point.precision != "int8":
            return template.fill(tensors)
        ranges = ranges_for(networks, self._bundle.extras, point.resolution, point.mode)
        kernels = rounded_kernels(tensors, ranges)
        graph = template.fill(tensors | corrected_biases(tensors, ranges, kernels))
        quantise(graph, kernels, ranges)
        return graph

    def _memory(self, point: OperatingPoint, largest: int) -> int:
        """Bytes that a network takes, from the values in its largest feature map of one image."""
        weights = self._template.blueprint.weight_bytes
        weights -= self._saved(point.resolution, point.precision)
        maps = (1 + self._threads) * _MAPS[point.precision] * largest
        return round(_CODE + _PACKINGS * weights + maps)

    def _saved(self, resolution: int, precision: str) -> int:
        """Bytes that weights lose when they become int8; layers without a range stay in float."""
        if precision != "int8":
            return 0
        ranges = ranges_for(self._networks, self._bundle.extras, resolution, Mode.PROXY)
        blueprint = self._template.blueprint
        sizes = {f"{slot.name}.weight": slot.numel for slot in blueprint.kernels}
        sizes |= {name: math.prod(shape) for name, shape in blueprint.shared.items()}
        return sum(3 * sizes[f"{layer}.weight"] for layer in ranges)

    def close(self) -> None:
        """Nothing to release beyond what the garbage collector does."""

    def _check_int8(self, point: OperatingPoint) -> None:
        if "int8" not in self.precisions:
            raise EngineUnavailableError(
                f"{point.resolution} cannot run in int8: the bundle was not quantised (see "
                "'san quantize'), or this CPU does not compute it."
            )

    def _key(self, point: OperatingPoint, what: str) -> str:
        """Names everything that a compiled network depends on."""
        isa, threads = self._decision.isa, self._threads
        host = [version("openvino"), cpu_model(), isa, self._float, threads, self._max_batch]
        return json.dumps([_FORM, self._bundle.sha256, *map(str, astuple(point)), what, *host])

    def _read(self, point: OperatingPoint, what: str) -> tuple[Any, int] | None:
        """A compiled network that an earlier process left, and the memory it takes."""
        key = self._key(point, what)
        kept = self._kept.load(key) if self._bundle.sha256 else None
        if kept is None:
            return None
        header, _, content = kept.partition(b"\n")
        try:
            return self._core.import_model(content, "CPU", self._properties(what)), int(header)
        except (RuntimeError, ValueError) as error:
            _log.warning("a kept network cannot be used and is compiled again: %s", error)
            self._kept.drop(key)
            return None

    def _compiled(self, point: OperatingPoint, what: str) -> tuple[Any, int]:
        """Generate and compile a network; what it takes in memory."""
        graph = self.graph(point)
        graph.reshape([1, point.resolution, point.resolution, 3])
        memory = self._memory(point, _largest_map(graph))
        compiled = self._core.compile_model(graph, "CPU", self._properties(what))
        return compiled, memory

    def _keep(self, point: OperatingPoint, what: str, compiled: Any, memory: int) -> None:
        if self._bundle.sha256:
            content = compiled.export_model().read()
            self._kept.save(self._key(point, what), f"{memory}\n".encode() + content)

    def _properties(self, what: str) -> dict[str, Any]:
        """A stream for each image of a batch, or one on all threads.

        Unpinned: two processes that pin their threads land on the same core.
        """
        streams = min(self._threads, self._max_batch) if what == "streams" else 1
        return {
            "PERFORMANCE_HINT": "THROUGHPUT" if what == "streams" else "LATENCY",
            "NUM_STREAMS": streams,
            "INFERENCE_NUM_THREADS": self._threads,
            "ENABLE_CPU_PINNING": False,
            "INFERENCE_PRECISION_HINT": self._float,
        }


def _rouse(core: Any, threads: int) -> None:
    """Have this thread start the library's own threads.

    They keep the niceness of the thread that first needs them: that must not be a builder.
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
        list(op.get_output_shape(0))
        for op in graph.get_ops()
        if op.get_output_size() and op.get_type_name() != "Constant"
    ]
    return max(math.prod(shape) for shape in shapes if len(shape) == 4 and shape[0] == 1)


def _probe(cache_dir: Path) -> CpuDecision:
    try:
        return probe(cache_dir)
    except PackageNotFoundError as error:
        raise EngineUnavailableError("OpenVINO is not installed.") from error


def _versions() -> str:
    """What has a say in a template's graph, other than the architecture."""
    return f"openvino {version('openvino')} {platform.machine()}"
