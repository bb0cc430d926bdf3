"""Turns a folded torch architecture into an OpenVINO graph with an empty place for each tensor.

Which constant is which tensor is found by content: the architecture is converted once with random
numbers, and no two tensors of random numbers are alike. The only part of the engine with torch.
"""

from __future__ import annotations

import copy
import hashlib
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn

from san_core.bundle import Bundle
from san_core.main_network.blueprint import Blueprint
from san_core.main_network.folding import FoldedArchitecture
from service.engines.openvino.padding import simplify
from service.engines.openvino.template import Template, replace
from service.errors import EngineUnavailableError

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


def _converted(module: nn.Module) -> Any:
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
    return simplify(steps.build())


def _digest(values: np.ndarray[Any, Any]) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).digest()


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
            replace(node, _place(node, name))
            tensors.pop(name, None)
    if tensors:
        raise EngineUnavailableError(
            f"{type(filled).__name__} cannot run on OpenVINO: its graph has no constant for "
            f"{', '.join(sorted(tensors)[:3])}. Use the torch engine."
        )


def convert(bundle: Bundle) -> Template:
    """Convert the architecture of a bundle; its weights have no part in it."""
    folded = FoldedArchitecture(bundle.network.skeleton)
    return convert_module(folded.module, Blueprint.draw(bundle.network, folded))


def convert_module(module: nn.Module, blueprint: Blueprint) -> Template:
    """Convert a folded architecture; it needs no storage."""
    filled = _with_random_storage(module)
    try:
        graph = _converted(filled)
    except RuntimeError as error:
        raise EngineUnavailableError(
            f"{type(module).__name__} cannot be converted to OpenVINO: {error}"
        ) from error
    _make_places(graph, filled)
    return Template(graph, blueprint)
