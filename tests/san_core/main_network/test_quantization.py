import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from san_core.main_network.folding import FoldedArchitecture
from san_core.main_network.quantization import (
    WEIGHT_PEAK,
    Int8Simulation,
    Range,
    corrected_biases,
    quantisable,
    quantise_weight,
    quantised_resolutions,
    ranges_for,
    to_extras,
)
from san_core.mode import Mode
from san_core.network.network_config import NetworkConfig
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork


@pytest.fixture(scope="module")
def network() -> ScaleAdaptiveNetwork:
    torch.manual_seed(0)
    return ScaleAdaptiveNetwork(NetworkConfig("resnet18", (64, 32), 5)).eval()


@given(
    high=st.floats(1e-3, 1e3),
    signed=st.booleans(),
    values=st.lists(st.floats(-2e3, 2e3, width=32), min_size=1),
)
def test_rounding_has_256_levels_with_zero_among_them(
    high: float, signed: bool, values: list[float]
) -> None:
    found = Range(high, signed)
    inside = torch.tensor(values, dtype=torch.float64)
    rounded = found.round(inside)
    levels = rounded / found.step
    assert torch.allclose(levels, levels.round(), atol=1e-6)
    assert rounded.min() >= found.low - 1e-9 * high
    assert rounded.max() <= found.high + 1e-9 * high
    within = inside.clamp(found.low, found.high)
    assert (rounded - within).abs().max() <= found.step * 0.5 + 1e-9 * high
    assert (found.high - found.low) / found.step == pytest.approx(255)
    assert found.round(torch.zeros(1)).item() == 0.0


def test_a_kernel_is_rounded_per_output_channel() -> None:
    kernel = torch.randn(4, 3, 3, 3) * torch.tensor([1e-3, 1.0, 50.0, 0.0]).view(4, 1, 1, 1)
    rounded, steps = quantise_weight(kernel.numpy())
    values, step = torch.from_numpy(rounded), torch.from_numpy(steps)
    assert values.dtype == torch.int8
    assert values.abs().amax((1, 2, 3)).tolist() == [WEIGHT_PEAK] * 3 + [0]
    assert bool(((values * step - kernel).abs() <= step * 0.5001).all())


def test_two_products_fit_into_16_bits() -> None:
    assert 2 * 255 * WEIGHT_PEAK < 2**15


def test_ranges_travel_in_extras() -> None:
    ranges = {"conv1": Range(2.5, True), "layer1.0.conv1": Range(6.0, False)}
    extras = to_extras(64, ranges) | to_extras(32, ranges) | {"other": torch.zeros(1)}
    assert quantised_resolutions(extras) == (64, 32)
    assert "quantization.64.layer1.0.conv1" in extras


def test_ranges_follow_the_batch_norm(network: ScaleAdaptiveNetwork) -> None:
    extras = to_extras(64, {"conv1": Range(4.0, True), "fc": Range(1.0, False)})
    extras |= to_extras(32, {"conv1": Range(2.0, True)})
    high = {
        (resolution, mode): ranges_for(network, extras, resolution, mode)["conv1"].high
        for resolution in (32, 40, 64)
        for mode in Mode
    }
    assert high[40, Mode.PROXY] == high[40, Mode.IDEAL] == high[32, Mode.PROXY] == 2.0
    assert high[40, Mode.DATA_FREE] == pytest.approx(2.5)
    assert high[64, Mode.DATA_FREE] == 4.0
    # A layer that one of the two keeps in float stays in float between them.
    assert set(ranges_for(network, extras, 40, Mode.DATA_FREE)) == {"conv1"}
    assert ranges_for(network, {}, 40, Mode.PROXY) == {}


def test_the_simulation_rounds_the_layers_with_ranges(network: ScaleAdaptiveNetwork) -> None:
    folded = FoldedArchitecture(network.skeleton)
    tensors = folded.fold(network.generate(32))
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        exact = network(images, 32)
        simulate = Int8Simulation(folded)
        assert torch.allclose(simulate(images, tensors, {}), exact, rtol=1e-4, atol=1e-4)
        fine = simulate(images, tensors, {"fc": Range(8.0, False)})
        again = simulate(images, tensors, {})
    assert 0 < (fine - exact).abs().max() < 0.1 * exact.abs().max()
    assert torch.allclose(again, exact, rtol=1e-4, atol=1e-4)  # nothing is left behind


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(6, 8, 3),
        nn.Conv2d(6, 6, 3, groups=6),
        nn.Conv2d(6, 4, 1, groups=2),
        nn.Linear(6, 5),
    ],
    ids=["full", "depthwise", "grouped", "linear"],
)
def test_corrected_biases_keep_the_mean_of_every_channel(layer: nn.Module) -> None:
    torch.manual_seed(0)
    shape = (64, 6, 5, 5) if isinstance(layer, nn.Conv2d) else (64, 6)
    images = torch.rand(shape[0], 6).view(64, 6, *(1,) * (len(shape) - 2)).expand(shape)
    arrays = {f"x.{name}": tensor.detach().numpy() for name, tensor in layer.named_parameters()}
    mean = images.transpose(0, 1).flatten(1).mean(1).numpy()
    weight, step = quantise_weight(arrays["x.weight"])

    def off(bias: np.ndarray) -> float:
        tensors = {"weight": torch.from_numpy(weight * step), "bias": torch.from_numpy(bias)}
        rounded = torch.func.functional_call(layer, tensors, images)
        apart = (rounded - layer(images)).transpose(0, 1).flatten(1).mean(1)
        return float(apart.detach().abs().max())

    kernels = {"x": (weight, step)}
    corrected = corrected_biases(arrays, {"x": Range(1.0, False, mean)}, kernels)
    assert off(corrected["x.bias"]) < 1e-5 < off(arrays["x.bias"])
    assert corrected_biases(arrays, {"x": Range(1.0, False)}, kernels) == {}


def test_means_are_kept_and_blended_as_ranges_are(network: ScaleAdaptiveNetwork) -> None:
    large, small = np.array([[1.0, 2.0, 4.0], [0.0, 0.0, 4.0]], np.float32)
    extras = to_extras(64, {"conv1": Range(4.0, True, large)})
    extras |= to_extras(32, {"conv1": Range(2.0, True, small)})
    assert quantised_resolutions(extras) == (64, 32)
    found = ranges_for(network, extras, 40, Mode.DATA_FREE)["conv1"]
    assert found.mean is not None
    assert found.mean.tolist() == [0.25, 0.5, 4.0]


def test_convolutions_and_linear_layers_can_be_quantised(network: ScaleAdaptiveNetwork) -> None:
    layers = quantisable(copy.deepcopy(network.skeleton))
    assert len(layers) == 21
    assert "fc" in layers
