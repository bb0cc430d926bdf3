"""One contract for every family that is lifted, and a reason from every one that is not."""

import pytest
import torch
from torch.func import functional_call

from san_core.errors import ArchitectureError
from san_core.main_network.folding import FoldedArchitecture
from san_core.mode import Mode
from san_core.network.architectures import FIRST_CLASS, build, dissect
from san_core.network.network_config import NetworkConfig
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork

FAMILIES = (
    "regnet_y_400mf",
    "regnet_x_400mf",
    "mnasnet0_5",
    "densenet121",
    "efficientnet_b0",
    "mobilenet_v3_small",
    "shufflenet_v2_x0_5",
    "googlenet",
    "vgg11_bn",
    "timm:tf_efficientnet_lite0",
    "timm:mobilenetv4_conv_small",
    "timm:ghostnet_100",
    "timm:hardcorenas_a",
    "timm:repvgg_a0",
    "timm:dla34",
    "timm:resnet10t",
    "timm:resnetblur18",
    "timm:repvit_m0_9",
)


@pytest.mark.parametrize("architecture", FAMILIES)
def test_lifted_family_generates_what_it_runs(architecture: str) -> None:
    torch.manual_seed(0)
    config = NetworkConfig(architecture, (96, 64), num_classes=5)
    network = ScaleAdaptiveNetwork(config).eval()
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        functional = network(images, 80, Mode.DATA_FREE)
        assert functional.isfinite().all()
        generated = network.generate(80, Mode.DATA_FREE)
        torch.testing.assert_close(
            functional_call(network.skeleton, generated, (images,)), functional
        )
        stock = build(architecture, 5)
        stock.load_state_dict(network.generate(80, Mode.DATA_FREE))
        torch.testing.assert_close(stock.eval()(images), functional, rtol=1e-5, atol=1e-6)
        folded = FoldedArchitecture(network.skeleton)
        folded.module.load_state_dict(
            folded.fold(network.generate(80, Mode.DATA_FREE)), assign=True
        )
        # Untrained networks make large numbers: in single precision their digits say little.
        images = images.double()
        exact = stock.double()(images)
        torch.testing.assert_close(folded.module.double()(images), exact, rtol=1e-4, atol=1e-4)
    assert folded.folded > 0


@pytest.mark.parametrize(
    ("architecture", "why"),
    [
        ("vgg11", "no BatchNorm2d"),
        ("alexnet", "no BatchNorm2d"),
        ("squeezenet1_0", "no BatchNorm2d"),
        ("convnext_tiny", "no BatchNorm2d"),
        ("vit_b_32", "is attention"),
        ("no_such_network", "Unknown architecture"),
        ("timm:no_such_network", "has no model"),
        ("timm:mixer_s32_224", "no BatchNorm2d"),
    ],
)
def test_what_cannot_be_lifted_says_why(architecture: str, why: str) -> None:
    with pytest.raises(ArchitectureError, match=why):
        dissect(build(architecture, device="meta"))


@pytest.mark.parametrize("architecture", FIRST_CLASS)
def test_every_stock_tensor_is_generated_private_or_shared(architecture: str) -> None:
    module = build(architecture, device="meta")
    anatomy = dissect(module)
    found = {f"{k.name}.weight" for k in anatomy.kernels} | set(anatomy.shared)
    for norm in anatomy.norms:
        kinds = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
        found |= {f"{norm.name}.{kind}" for kind in kinds}
    assert found == set(module.state_dict())


def test_the_stem_stays_shared_if_asked() -> None:
    anatomy = dissect(build("resnet18", device="meta"), generate_stem=False)
    assert "conv1.weight" in anatomy.shared
    assert "conv1" not in {k.name for k in anatomy.kernels}
