"""Padding that depends on an image's size becomes the convolution's own, if it is the same."""

import numpy as np
import torch
from torch import nn

from service.engines.openvino.convert import _converted
from service.engines.openvino.core import core


class Padded(nn.Module):
    """A convolution of stride two behind padding; `extra` pixels more than TensorFlow's "same"."""

    def __init__(self, extra: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2)
        self.extra = extra

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[-2:]
        rows, columns = (2 * ((n + 1) // 2 - 1) + 3 - n + self.extra for n in (height, width))
        around = [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2]
        return self.conv(nn.functional.pad(x, around))


def converted(module: nn.Module) -> tuple[object, set[str]]:
    graph = _converted(module.eval())
    return graph, {node.get_type_name() for node in graph.get_ops()}


def agrees(graph: object, module: nn.Module) -> None:
    compiled = core().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for height, width in ((64, 64), (57, 57), (63, 40), (32, 33)):
        pixels = np.random.default_rng(1).random((1, height, width, 3), np.float32)
        with torch.no_grad():
            expected = module(torch.from_numpy(pixels).permute(0, 3, 1, 2)).numpy()
        assert np.abs(compiled([pixels])[0] - expected).max() < 1e-5


def test_same_padding_is_the_convolutions_own() -> None:
    module = Padded(extra=0)
    graph, kinds = converted(module)
    assert not kinds & {"Pad", "ShapeOf"}
    agrees(graph, module)


def test_other_padding_stays() -> None:
    module = Padded(extra=1)
    graph, kinds = converted(module)
    assert {"Pad", "ShapeOf"} <= kinds
    agrees(graph, module)
