"""One OpenVINO graph per architecture, from which every main network is made by swapping constants.

Converting a torch module takes seconds and needs torch; cloning the graph and putting other tensors
in takes milliseconds. So templates are kept: those of common architectures come with the package,
others are converted at first use and left in the cache directory.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from san_core.main_network.blueprint import Blueprint
from service.engines.openvino.core import core
from service.errors import EngineUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from san_core.bundle import Bundle
    from san_core.preprocessing import Preprocessing

_log = logging.getLogger(__name__)

SHIPPED = Path(__file__).with_name("templates")
"""Shipped with the package; `python -m service.engines.openvino.templates` writes them."""
_BLUEPRINT = ["san", "blueprint"]
"""Where in the graph's runtime information the blueprint stands."""
_LAYERS = ("Convolution", "GroupConvolution", "MatMul")


def replace(node: Any, other: Any) -> None:
    """Have everything that reads `node` read `other`."""
    for consumer in node.output(0).get_target_inputs():
        consumer.replace_source_output(other.output(0))


class Template:
    """The graph of a folded architecture, with a named place for each of its tensors."""

    def __init__(self, graph: Any, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self._graph = graph
        self._lock = threading.Lock()

    @classmethod
    def find(cls, bundle: Bundle, directory: Path, versions: str) -> Template:
        """The template of a bundle's architecture: shipped, kept in `directory`, or made now.

        `versions` names everything that has a say in how it is made. A directory that cannot be
        written, or a file that cannot be read, costs the conversion.
        """
        template = cls._found(bundle, directory, versions)
        template._normalise(bundle.manifest.preprocessing)
        return template

    @classmethod
    def _found(cls, bundle: Bundle, directory: Path, versions: str) -> Template:
        config = bundle.manifest.network
        name = shipped_name(config.architecture, config.num_classes, config.generate_stem)
        key = hashlib.sha256(f"{name} {versions}".encode()).hexdigest()[:16]
        kept = directory / f"template-{key}.xml"
        for path in (SHIPPED / f"{name}.xml", kept):
            if path.exists():
                try:
                    return cls.read(path)
                except (RuntimeError, ValueError, LookupError) as error:
                    _log.warning("the template %s is unreadable and is made again: %s", path, error)
        try:
            from service.engines.openvino.convert import convert
        except ImportError as error:
            raise EngineUnavailableError(
                f"{config.architecture} must be converted once, which needs torch: "
                "pip install 'san-serve[torch]', or serve it first where that is installed and "
                f"copy {kept.parent} here"
            ) from error
        template = convert(bundle)
        try:
            template.write(kept)
        except (OSError, RuntimeError) as error:
            _log.info("the template is not kept: %s", error)
        return template

    @classmethod
    def read(cls, path: Path) -> Template:
        """Read what `write` wrote; RuntimeError, ValueError or LookupError if it is damaged."""
        graph = core().read_model(path)
        if not graph.has_rt_info(_BLUEPRINT):
            raise ValueError("it has no blueprint")
        return cls(graph, Blueprint.from_json(graph.get_rt_info(_BLUEPRINT).astype(str)))

    def write(self, path: Path) -> None:
        """Move both files of the graph into place, the one that is looked for last."""
        from openvino import serialize

        path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            self._graph.set_rt_info(self.blueprint.to_json(), _BLUEPRINT)
            with tempfile.TemporaryDirectory(dir=path.parent) as beside:
                draft = Path(beside) / path.name
                serialize(self._graph, draft)
                draft.with_suffix(".bin").replace(path.with_suffix(".bin"))
                draft.replace(path)

    def _normalise(self, preprocessing: Preprocessing) -> None:
        """Make the graph take pixels as bytes, [n, h, w, 3]; normalising them is its first step.

        In this order the CPU plugin does it fastest: before the channels are moved to the front.
        """
        import numpy as np
        from openvino import opset13 as ops

        (numbers,) = self._graph.get_parameters()
        pixels = ops.parameter(numbers.get_partial_shape(), np.uint8)
        scaled = ops.multiply(ops.convert(pixels, np.float32), preprocessing.scale)
        replace(numbers, ops.add(scaled, preprocessing.offset))
        self._graph.replace_parameter(0, pixels)
        self._graph.validate_nodes_and_infer_types()

    def fill(self, tensors: Mapping[str, NDArray[np.float32]]) -> Any:
        """Return a graph of its own with `tensors`, a state dict of the folded architecture.

        The constants are views of the tensors, and keep them alive.
        """
        from openvino import op

        graph = self._clone()
        empty = set(tensors)
        for place in graph.get_ops():
            name = place.get_friendly_name()
            if place.get_type_name() == "Broadcast" and name in tensors:
                values = tensors[name].reshape(tuple(place.shape))
                constant = op.Constant(values, shared_memory=True)
                constant.set_friendly_name(name)
                replace(place, constant)
                empty.discard(name)
        if empty:
            raise EngineUnavailableError(
                f"The OpenVINO graph has no place for {', '.join(sorted(empty)[:3])}."
            )
        return graph

    def macs(self, resolution: int) -> int:
        """Count the multiply-adds of one image."""
        graph = self._clone()
        graph.reshape([1, resolution, resolution, 3])
        total = 0
        for node in graph.get_ops():
            if node.get_type_name() in _LAYERS:
                weight, outputs = list(node.input_value(1).shape), list(node.output(0).shape)
                total += math.prod(outputs) * math.prod(weight) // _outputs(node, weight)
        return total

    def _clone(self) -> Any:
        with self._lock:
            return self._graph.clone()


def _outputs(node: Any, weight: list[int]) -> int:
    """How many output channels a weight has: [o, i, h, w], [g, o / g, i / g, h, w], [o, i]."""
    if node.get_type_name() == "GroupConvolution":
        return weight[0] * weight[1]
    if node.get_type_name() == "MatMul":
        return weight[0] if node.get_attributes()["transpose_b"] else weight[1]
    return weight[0]


def shipped_name(architecture: str, num_classes: int, generate_stem: bool) -> str:
    """The file name of an architecture's template, without its suffix."""
    plain = re.sub(r"[^A-Za-z0-9_]", "-", architecture)
    return f"{plain}-{num_classes}" + ("" if generate_stem else "-shared-stem")
