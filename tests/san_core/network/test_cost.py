from collections.abc import Callable

import pytest
import torch

from san_core.errors import ArchitectureError
from san_core.network.architectures import build
from san_core.network.cost import cost, macs, ratios
from san_core.network.network_config import MetaLearnerKind
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from san_core.network.scale_encoding import encode

Make = Callable[..., ScaleAdaptiveNetwork]


@pytest.mark.parametrize(
    ("resolution", "mflops"), [(224, 300), (192, 221), (160, 154), (128, 99), (96, 56)]
)
def test_the_papers_column_of_mobilenet_v2(resolution: int, mflops: float) -> None:
    assert macs(build("mobilenet_v2", device="meta"), resolution) / 1e6 == pytest.approx(
        mflops, rel=0.01
    )


def test_a_main_network_costs_what_the_stock_network_costs(make_network: Make) -> None:
    network = make_network("resnet18")
    found = cost(network, 96)
    stock = build("resnet18", 7, "meta")
    assert found.macs == macs(stock, 96)
    assert found.parameters == sum(p.numel() for p in stock.parameters())
    state = network.generate(96).values()
    assert found.weight_bytes == 4 * sum(t.numel() for t in state if t.is_floating_point())


def test_ratios_compare_w_to_the_papers_b(make_network: Make) -> None:
    network = make_network("resnet18", origin=encode(96))
    with torch.no_grad():
        network.meta_learner.weight.fill_(0.5)
        network.meta_learner.bias.fill_(0.5 * encode(96) + 2.0)  # so that b = 2 at origin 0
    found = ratios(network)
    assert list(found) == [slot.name for slot in network.kernels]
    assert all(value == pytest.approx(0.25) for value in found.values())


def test_only_linear_meta_learners_have_ratios(make_network: Make) -> None:
    with pytest.raises(ArchitectureError):
        ratios(make_network("resnet18", meta_learner=MetaLearnerKind.MLP_8))
