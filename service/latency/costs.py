"""What a bundle's main networks cost: multiply-adds and bytes, per resolution and precision."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from san_core.bundle import Bundle
from san_core.cost import Cost, cost
from san_core.mode import Mode
from san_core.quantization import ranges_for

_SAVED = 3
"""Bytes that a weight loses when it becomes int8."""


def count_costs(bundle: Bundle, shapes: Iterable[tuple[int, str]]) -> dict[tuple[int, str], Cost]:
    """The cost of every (resolution, precision); takes a while, so not on the event loop."""
    wanted = set(shapes)
    floats = {resolution: cost(bundle.network, resolution) for resolution, _ in wanted}
    return {
        (resolution, precision): floats[resolution]
        if precision == "float"
        else _in_int8(bundle, resolution, floats[resolution])
        for resolution, precision in wanted
    }


def _in_int8(bundle: Bundle, resolution: int, of_float: Cost) -> Cost:
    """Layers without a range stay in float."""
    skeleton = bundle.network.skeleton
    weights = [
        skeleton.get_parameter(f"{layer}.weight").numel()
        for layer in ranges_for(bundle.network, bundle.extras, resolution, Mode.PROXY)
    ]
    return replace(of_float, weight_bytes=of_float.weight_bytes - _SAVED * sum(weights))
