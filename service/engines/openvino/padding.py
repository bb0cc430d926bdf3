"""Lets convolutions compute the padding that a converted graph computes in front of them.

TensorFlow's "same" padding depends on the size of the image. In PyTorch it is arithmetic before a
pad, about fifty nodes each time, which every compilation would have to get rid of again.
"""

from __future__ import annotations

from typing import Any

_SIZES = range(64, 96)
"""Five halvings meet odd and even sizes in every layer."""


def simplify(graph: Any) -> Any:
    """Return the graph without such pads, or as it is if that would not be the same."""
    simpler = graph.clone()
    for node in simpler.get_ops():
        if _pads_by_size(node):
            _pad_within(node)
    if not any(map(_pads_by_size, graph.get_ops())):
        return graph
    simpler.validate_nodes_and_infer_types()
    same = all(_paddings(graph, size) == _paddings(simpler, size) for size in _SIZES)
    return simpler if same else graph


def _consumers(node: Any) -> list[Any]:
    return [entry.get_node() for entry in node.output(0).get_target_inputs()]


def _pads_by_size(node: Any) -> bool:
    """Whether a node pads with zeros, as the size asks for, and only for plain convolutions."""
    if node.get_type_name() != "Pad" or node.get_attributes()["pad_mode"] != "constant":
        return False
    value = node.input_value(3).get_node() if node.get_input_size() > 3 else None
    if value is not None and (value.get_type_name() != "Constant" or value.data.any()):
        return False
    if node.input_value(1).get_node().get_type_name() == "Constant":
        return False
    return all(
        user.get_type_name() in ("Convolution", "GroupConvolution")
        and not any(user.get_attributes()["pads_begin"] + user.get_attributes()["pads_end"])
        for user in _consumers(node)
    )


def _pad_within(pad: Any) -> None:
    """Have the convolutions behind a pad do its work."""
    from openvino import opset13 as ops

    for user in _consumers(pad):
        known = user.get_attributes()
        make = ops.convolution if user.get_type_name() == "Convolution" else ops.group_convolution
        other = make(
            pad.input_value(0),
            user.input_value(1),
            known["strides"],
            known["pads_begin"],
            known["pads_end"],
            known["dilations"],
            "same_upper",
        )
        other.set_friendly_name(user.get_friendly_name())
        for entry in user.output(0).get_target_inputs():
            entry.replace_source_output(other.output(0))


def _paddings(graph: Any, size: int) -> dict[str, list[Any]]:
    """What is put around each convolution's input if the image is as large."""
    from openvino import passes

    shaped = graph.clone()
    shaped.reshape([1, size, size, 3])
    folding = passes.Manager()
    folding.register_pass(passes.ConstantFolding())
    folding.run_passes(shaped)
    found = {}
    for node in shaped.get_ops():
        if node.get_type_name() not in ("Convolution", "GroupConvolution"):
            continue
        known = node.get_attributes()
        around = [list(known["pads_begin"]), list(known["pads_end"])]
        before = node.input_value(0).get_node()
        if before.get_type_name() == "Pad":
            for at in (0, 1):
                more = before.input_value(at + 1).get_node().data.tolist()[2:]
                around[at] = [a + b for a, b in zip(around[at], more, strict=True)]
        found[node.get_friendly_name()] = around
    return found
