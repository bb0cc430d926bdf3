"""Quantises a filled OpenVINO graph, so that the CPU plugin runs it in int8.

The scheme is that of `san_core.main_network.quantization`. Here it is written as the nodes that the
plugin looks for: FakeQuantize on what enters a layer, and int8 constants with a step per output
channel as weights.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from san_core.main_network.quantization import Range, Rounded

_LAYERS = ("Convolution", "GroupConvolution", "MatMul")
_LEVELS = 256
"""Of eight bits."""


def _weights(place: Any, values: Any, step: Any) -> Any:
    """Return weights in int8, in the shape of the constant in their place."""
    from openvino import op
    from openvino import opset13 as ops

    shape = tuple(place.shape)  # of grouped convolutions: [groups, o / groups, i / groups, h, w]
    leading = next(n for n in range(1, len(shape) + 1) if math.prod(shape[:n]) == step.size)
    per_channel = shape[:leading] + (1,) * (len(shape) - leading)
    constant = op.Constant(values.reshape(shape), shared_memory=False)
    steps = op.Constant(step.reshape(per_channel), shared_memory=False)
    return ops.multiply(ops.convert(constant, "f32"), steps)


def _rounded(source: Any, found: Range) -> Any:
    from openvino import opset13 as ops

    low, high = ops.constant(np.float32(found.low)), ops.constant(np.float32(found.high))
    return ops.fake_quantize(source, low, high, low, high, levels=_LEVELS)


def quantise(graph: Any, kernels: Mapping[str, Rounded], ranges: Mapping[str, Range]) -> None:
    """Quantise the layers of a filled template that have a range, in place."""
    rounded: dict[tuple[str, int], Any] = {}
    for node in graph.get_ordered_ops():
        if node.get_type_name() not in _LAYERS:
            continue
        place = node.input_value(1).get_node()
        layer = place.get_friendly_name().removesuffix(".weight")
        if layer not in ranges:
            continue
        node.input(1).replace_source_output(_weights(place, *kernels[layer]).output(0))
        entry = node.input(0)
        before = entry.get_source_output().get_node()
        if before.get_type_name() == "Pad":
            # Zero is one of the levels, and a Pad next to its convolution becomes part of it.
            entry = before.input(0)
        source = entry.get_source_output()
        key = (source.get_node().get_name(), source.get_index())
        if key not in rounded:
            rounded[key] = _rounded(source, ranges[layer])
        entry.replace_source_output(rounded[key].output(0))
