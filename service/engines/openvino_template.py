"""One OpenVINO graph per architecture, from which every main network is made by swapping constants.

Converting a torch module takes about a second; cloning the graph and putting other tensors in
takes milliseconds. Which constant is which tensor is found by content: the architecture is
converted once with random numbers, and no two tensors of random numbers are alike.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import tempfile
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from service.errors import EngineUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

_log = logging.getLogger(__name__)

_EXAMPLE_SIDE = 64
"""Side of the image the architecture is traced with; the graph takes any other just as well."""


def _with_random_storage(module: nn.Module) -> nn.Module:
    """Give a storage-less module random numbers; no constant of it may look redundant."""
    module = copy.deepcopy(module).to_empty(device="cpu")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in module.state_dict().values():
            if tensor.is_floating_point():  # positive, as some of them are variances
                tensor.copy_(torch.rand(tensor.shape, generator=generator).add_(0.5))
            else:
                tensor.zero_()
    return module.eval()


def _convert(module: nn.Module) -> Any:
    """Convert a module to a graph with input [n, h, w, 3], all but the channels dynamic.

    The frontend is called directly: `openvino.convert_model` wraps it in telemetry.
    """
    import openvino as ov
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder
    from openvino.preprocess import PrePostProcessor

    example = torch.zeros(1, 3, _EXAMPLE_SIDE, _EXAMPLE_SIDE)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of shapes that become numbers, and of TorchScript's age
        scripted = torch.jit.trace(module, example, check_trace=False)  # type: ignore[no-untyped-call]
        decoder = TorchScriptPythonDecoder(scripted)  # must outlive the conversion
        frontend = FrontEndManager().load_by_framework("pytorch")
        graph = frontend.convert(frontend.load(decoder))
    graph.reshape(ov.PartialShape([-1, 3, -1, -1]))
    steps = PrePostProcessor(graph)
    steps.input().tensor().set_layout(ov.Layout("NHWC"))
    steps.input().model().set_layout(ov.Layout("NCHW"))
    return steps.build()


def _digest(values: np.ndarray[Any, Any]) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).digest()


def _replace(node: Any, other: Any) -> None:
    for consumer in node.output(0).get_target_inputs():
        consumer.replace_source_output(other.output(0))


def _place(constant: Any, name: str) -> Any:
    """Make an empty place of a constant's shape: a template holds no weights."""
    from openvino import opset13 as ops

    place = ops.broadcast(np.float32(0.0), np.array(list(constant.shape), np.int64))
    place.set_friendly_name(name)
    return place


def _make_places(graph: Any, filled: nn.Module) -> None:
    tensors = {n: t for n, t in filled.state_dict().items() if t.is_floating_point()}
    owners = {_digest(tensor.numpy()): name for name, tensor in tensors.items()}
    for node in graph.get_ops():
        if node.get_type_name() == "Constant" and (name := owners.get(_digest(node.data))):
            _replace(node, _place(node, name))
            tensors.pop(name, None)
    if tensors:
        raise EngineUnavailableError(
            f"{type(filled).__name__} cannot run on OpenVINO: its graph has no constant for "
            f"{', '.join(sorted(tensors)[:3])}. Use the torch engine."
        )


class Template:
    """The graph of a folded architecture, with a named place for each of its tensors."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._lock = threading.Lock()

    @classmethod
    def convert(cls, module: nn.Module) -> Template:
        """Convert a folded architecture; it needs no storage."""
        filled = _with_random_storage(module)
        try:
            graph = _convert(filled)
        except RuntimeError as error:
            raise EngineUnavailableError(
                f"{type(module).__name__} cannot be converted to OpenVINO: {error}"
            ) from error
        _make_places(graph, filled)
        return cls(graph)

    @classmethod
    def cached(cls, module: nn.Module, directory: Path, key: str) -> Template:
        """Read the template that an earlier process converted, or convert it and leave it there.

        `key` names the architecture and the versions of everything that has a say in its graph.
        A directory that cannot be written, or a file that cannot be read, costs the conversion.
        """
        path = directory / f"template-{hashlib.sha256(key.encode()).hexdigest()[:16]}.xml"
        try:
            from openvino import Core

            if path.exists():
                return cls(Core().read_model(path))
        except RuntimeError as error:
            _log.warning("The cached template %s is unreadable and is made again: %s", path, error)
        template = cls.convert(module)
        try:
            template._write(path)
        except (OSError, RuntimeError) as error:
            _log.info("The template is not cached: %s", error)
        return template

    def _write(self, path: Path) -> None:
        """Move both files of the graph into place, the one that is looked for last."""
        from openvino import serialize

        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as beside:
            draft = Path(beside) / path.name
            serialize(self._graph, draft)
            draft.with_suffix(".bin").replace(path.with_suffix(".bin"))
            draft.replace(path)

    def fill(self, tensors: Mapping[str, Tensor]) -> Any:
        """Return a graph of its own with `tensors`, a state dict of the folded architecture.

        The constants are views of the tensors, and keep them alive.
        """
        from openvino import op

        with self._lock:
            graph = self._graph.clone()
        empty = {name for name, tensor in tensors.items() if tensor.is_floating_point()}
        for place in graph.get_ops():
            name = place.get_friendly_name()
            if place.get_type_name() == "Broadcast" and name in tensors:
                values = tensors[name].detach().contiguous().numpy()
                constant = op.Constant(values.reshape(tuple(place.shape)), shared_memory=True)
                constant.set_friendly_name(name)
                _replace(place, constant)
                empty.discard(name)
        if empty:
            raise EngineUnavailableError(
                f"The OpenVINO graph has no place for {', '.join(sorted(empty)[:3])}."
            )
        return graph
