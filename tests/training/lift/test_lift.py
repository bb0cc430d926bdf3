import pytest
import torch
from torch import nn

from san_core.mode import Mode
from san_core.network.architectures import FIRST_CLASS, build
from training.errors import PretrainedError
from training.lift.lift import lift

RESOLUTIONS = (96, 64, 48)


def pretrained(architecture: str, seed: int = 0, classes: int = 5) -> nn.Module:
    """Make a stock CNN whose batch norms look trained."""
    torch.manual_seed(seed)
    module = build(architecture, classes)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.uniform_(layer.bias, -0.2, 0.2)
            layer.running_mean.uniform_(-0.2, 0.2)
            layer.running_var.uniform_(0.5, 2.0)
    return module.eval()


@pytest.mark.parametrize(
    "architecture",
    [
        *FIRST_CLASS,
        "densenet121",
        "efficientnet_b0",
        "vgg11_bn",
        "timm:tf_efficientnet_lite0",
        "timm:resnetblur18",
        "timm:repvit_m0_9",
    ],
)
def test_a_lifted_network_is_the_original_at_every_resolution(architecture: str) -> None:
    original = pretrained(architecture)
    lifted = lift(
        architecture,
        {64: original.state_dict()},
        native=64,
        resolutions=RESOLUTIONS,
        num_classes=5,
    )
    with torch.no_grad():
        for side in (64, 96):  # W is zero, batch norm a copy
            images = torch.randn(2, 3, side, side)
            expected = original(images)
            torch.testing.assert_close(lifted.network(images, side), expected, atol=1e-5, rtol=1e-5)


def test_b_is_the_pretrained_kernel_and_w_is_zero() -> None:
    original = pretrained("resnet18")
    network = lift(
        "resnet18",
        {96: original.state_dict()},
        native=96,
        resolutions=RESOLUTIONS,
        num_classes=5,
    ).network
    assert torch.count_nonzero(network.meta_learner.weight) == 0
    first = network.kernels[0]
    stock = original.get_submodule(first.name).weight
    assert torch.equal(network.meta_learner.bias[: first.numel], stock.reshape(-1))


def test_the_native_point_survives_any_w() -> None:
    original = pretrained("mobilenet_v2")
    network = lift(
        "mobilenet_v2",
        {64: original.state_dict()},
        native=64,
        resolutions=RESOLUTIONS,
        num_classes=5,
    ).network
    with torch.no_grad():
        network.meta_learner.weight.normal_()
        images = torch.randn(2, 3, 64, 64)
        assert torch.equal(network(images, 64), original(images))
        assert not torch.allclose(network(images, 96), original(images), atol=1e-3)


def test_with_knots_the_network_stays_itself_from_the_first_one_up() -> None:
    original = pretrained("mobilenet_v2")
    network = lift(
        "mobilenet_v2",
        {96: original.state_dict()},
        native=96,
        resolutions=RESOLUTIONS,
        num_classes=5,
        knots=(64, 48),
    ).network
    with torch.no_grad():
        network.meta_learner.weight.normal_()
        images = torch.randn(2, 3, 64, 64)
        assert torch.equal(network(images, 96), original(images))
        assert torch.equal(network(images, 64), original(images))
        assert not torch.allclose(network(images, 48), original(images), atol=1e-3)


@pytest.mark.parametrize(
    ("sides", "native", "knots", "why"),
    [((96, 48), 96, (64, 48), "one network"), ((64,), 64, (96, 48), "below the first")],
)
def test_knots_that_do_not_fit_are_refused(
    sides: tuple[int, ...], native: int, knots: tuple[int, ...], why: str
) -> None:
    states = {side: pretrained("mobilenet_v2").state_dict() for side in sides}
    with pytest.raises(PretrainedError, match=why):
        lift("mobilenet_v2", states, native=native, resolutions=RESOLUTIONS, knots=knots)


def test_two_networks_are_met_exactly_each_with_its_own_batch_norm() -> None:
    large, small = pretrained("mobilenet_v2", 0), pretrained("mobilenet_v2", 1)
    with torch.no_grad():  # the head is what all resolutions share
        small.classifier.load_state_dict(large.classifier.state_dict())
    lifted = lift(
        "mobilenet_v2",
        {96: large.state_dict(), 48: small.state_dict()},
        native=96,
        resolutions=RESOLUTIONS,
        num_classes=5,
    )
    assert all(r.kernels < 1e-5 and r.shared == 0.0 for r in lifted.residuals)
    with torch.no_grad():
        for original, side in ((large, 96), (small, 48)):
            images = torch.randn(2, 3, side, side)
            torch.testing.assert_close(
                lifted.network(images, side), original(images), atol=1e-4, rtol=1e-4
            )


def test_three_networks_are_fitted_by_least_squares_with_a_residual() -> None:
    originals = {side: pretrained("resnet18", side) for side in RESOLUTIONS}
    states = {side: m.state_dict() for side, m in originals.items()}
    lifted = lift("resnet18", states, native=96, resolutions=RESOLUTIONS, num_classes=5)
    name = "layer1.0.conv1.weight"
    made = {s: lifted.network.generate(s, Mode.PROXY)[name] for s in RESOLUTIONS}
    apart = {s: made[s] - states[s][name] for s in RESOLUTIONS}
    # Normal equations of a line with intercept: residuals are orthogonal to 1 and to the encoding.
    total = torch.stack(list(apart.values())).sum(0)
    slanted = torch.stack([s * apart[s] for s in RESOLUTIONS]).sum(0) / 96
    assert total.abs().max() < 1e-5
    assert slanted.abs().max() < 1e-5
    assert all(r.kernels > 0.1 for r in lifted.residuals)
    mean = torch.stack([s["fc.bias"] for s in states.values()]).mean(0)
    torch.testing.assert_close(lifted.network.generate(96)["fc.bias"], mean)


def test_batch_norm_without_weights_starts_as_the_nearest_given_one() -> None:
    large, small = pretrained("resnet18", 0), pretrained("resnet18", 1)
    network = lift(
        "resnet18",
        {128: large.state_dict(), 48: small.state_dict()},
        native=128,
        resolutions=(128, 112, 64, 48),
        num_classes=5,
    ).network
    for side, original in ((112, large), (64, small)):
        state = network.generate(side)
        assert torch.equal(state["bn1.running_var"], original.bn1.running_var)


@pytest.mark.parametrize(("given", "native"), [(64, 96), (80, 80)])
def test_impossible_requests_are_refused(given: int, native: int) -> None:
    state = pretrained("resnet18").state_dict()
    with pytest.raises(PretrainedError):
        lift("resnet18", {given: state}, native=native, resolutions=RESOLUTIONS, num_classes=5)
