"""Tries one small network in each precision on this CPU; run as a script in a process of its own.

Virtual machines exist whose CPU flags promise instructions that kill the process, so nothing here
may be run in the server. One JSON line per precision that survived; the caller sees where it ended.
Knows nothing of the rest of the project: it must start fast.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

for _name in ("openvino_telemetry", "openvino.tools.ovc"):  # as in service/engines/__init__.py
    sys.modules[_name] = None  # type: ignore[assignment]

import openvino as ov  # noqa: E402
from openvino import opset13 as ops  # noqa: E402

_CHANNELS = 64
_SIDE = 28
_REPEATS = 15
"""The shape of a typical layer, and how many runs the fastest is taken of. Chosen."""


def _quantised(node: Any, low: float, high: float, levels: int) -> Any:
    bounds = [np.float32(v) for v in (low, high, low, high)]
    return ops.fake_quantize(node, *bounds, levels=levels)


def _network(kernels: list[np.ndarray[Any, Any]], headroom: float) -> ov.Model:
    """A chain of 3x3 convolutions with ReLU, for images 0..1.

    With `headroom` it is quantised: weights to the largest one times that.
    """
    image = ops.parameter([1, _CHANNELS, _SIDE, _SIDE], np.float32)
    node = image
    for kernel in kernels:
        weights: Any = ops.constant(kernel)
        if headroom:
            peak = headroom * float(np.abs(kernel).max())
            node = _quantised(node, 0.0, 1.0, 256)
            weights = _quantised(weights, -peak, peak, 255)
        node = ops.relu(ops.convolution(node, weights, [1, 1], [1, 1], [1, 1], [1, 1]))
    return ov.Model([node], [image])


def _reference(
    image: np.ndarray[Any, Any], kernels: list[np.ndarray[Any, Any]]
) -> np.ndarray[Any, Any]:
    for kernel in kernels:
        padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        image = np.maximum(np.einsum("nchwij,ocij->nohw", windows, kernel, optimize=True), 0.0)
    return image


def _try(
    core: ov.Core,
    hint: str,
    headroom: float,
    image: np.ndarray[Any, Any],
    kernels: list[np.ndarray[Any, Any]],
) -> dict[str, Any]:
    network = _network(kernels, headroom)
    compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": hint})
    request = compiled.create_infer_request()
    took = []
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        request.infer([image])
        took.append(time.perf_counter() - begun)
    expected = _reference(image, kernels)
    error = float(np.abs(request.get_output_tensor().data - expected).max() / expected.max())
    return {"error": error, "ms": 1000 * min(took)}


def main() -> None:
    """Try float32, int8 with and without headroom, bfloat16."""
    random = np.random.default_rng(0)
    core = ov.Core()
    image = random.random((1, _CHANNELS, _SIDE, _SIDE), np.float32)
    shape = (_CHANNELS, _CHANNELS, 3, 3)
    # Roughly the means of their inputs, so that values stay within 0..1.
    mixed = [random.random(shape, np.float32) / (9 * _CHANNELS) for _ in range(3)]
    # Every product the largest there is: without VNNI two of them do not fit into 16 bits.
    full = [np.full(shape, 1 / (9 * _CHANNELS), np.float32)]
    ones = np.ones_like(image)
    for trial, hint, headroom, pixels, kernels in (
        ("f32", "f32", 0.0, image, mixed),
        ("int8", "f32", 2.0, image, mixed),
        ("int8_full_range", "f32", 1.0, ones, full),
        ("bf16", "bf16", 0.0, image, mixed),
    ):
        outcome = {"trial": trial} | _try(core, hint, headroom, pixels, kernels)
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
