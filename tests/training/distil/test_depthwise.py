import pytest
import torch
from torch import nn
from torch.func import functional_call

from training.distil.depthwise import DepthwiseConv2d, use_fast_depthwise


@pytest.mark.parametrize(("side", "kernel"), [(3, 5), (2, 3), (1, 3), (4, 7), (8, 5)])
def test_gradients_are_those_of_the_stock_convolution(side: int, kernel: int) -> None:
    torch.manual_seed(0)
    stock = nn.Conv2d(6, 6, kernel, padding=kernel // 2, groups=6).double()
    fast = DepthwiseConv2d(6, 6, kernel, padding=kernel // 2, groups=6).double()
    fast.load_state_dict(stock.state_dict())
    images = torch.randn(4, 6, side, side, dtype=torch.double)
    upstream = torch.randn(4, 6, side, side, dtype=torch.double)
    found = []
    for layer in (stock, fast):
        seen = images.clone().requires_grad_()
        made = layer(seen)
        made.backward(upstream)
        found.append((made.detach(), seen.grad, layer.weight.grad, layer.bias.grad))
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected)


def test_only_plain_depthwise_layers_are_replaced() -> None:
    with torch.device("meta"):
        module = nn.Sequential(
            nn.Conv2d(8, 8, 5, padding=2, groups=8),
            nn.Conv2d(8, 8, 5, padding=2, groups=8, stride=2),
            nn.Conv2d(8, 8, 5, padding=2, groups=8, bias=False),
            nn.Conv2d(8, 8, 5, padding=2, groups=4),
            nn.Conv2d(8, 8, 5, padding=2),
        )
    assert use_fast_depthwise(module) == 1
    assert isinstance(module[0], DepthwiseConv2d)
    assert not any(isinstance(layer, DepthwiseConv2d) for layer in module[1:])


def test_it_runs_with_tensors_from_elsewhere() -> None:
    with torch.device("meta"):
        module = nn.Sequential(nn.Conv2d(4, 4, 5, padding=2, groups=4))
    use_fast_depthwise(module)
    tensors = {"0.weight": torch.randn(4, 1, 5, 5), "0.bias": torch.randn(4)}
    images = torch.randn(1, 4, 3, 3)
    expected = nn.functional.conv2d(
        images, tensors["0.weight"], tensors["0.bias"], padding=2, groups=4
    )
    assert torch.equal(functional_call(module, tensors, (images,)), expected)
