import pytest
import torch

from san_core.network.meta_learner import (
    KernelSlot,
    LinearMetaLearner,
    MetaLearner,
    MetaLearnerKind,
    PiecewiseLinearMetaLearner,
    make_meta_learner,
)
from san_core.network.scale_encoding import encode

PAPER = (224, 192, 160, 128, 96)
SLOTS = [
    KernelSlot("standard", (64, 32, 3, 3), 1),
    KernelSlot("grouped", (64, 8, 3, 3), 8),
    KernelSlot("depthwise", (512, 1, 3, 3), 512),
    KernelSlot("pointwise", (128, 64, 1, 1), 1),
]


def make(kind: MetaLearnerKind, how: str = "kaiming", origin: float = 0.0) -> MetaLearner:
    torch.manual_seed(0)
    knots = (192, 128, 96) if kind is MetaLearnerKind.PIECEWISE else ()
    learner = make_meta_learner(kind, SLOTS, PAPER, origin, knots=knots)
    learner.initialise(how, PAPER)  # type: ignore[arg-type]
    return learner


def test_encoding_of_the_papers_resolutions() -> None:
    assert [round(encode(T), 6) for T in PAPER] == [0.7, 0.6, 0.5, 0.4, 0.3]


@pytest.mark.parametrize("kind", list(MetaLearnerKind))
def test_contract_one_flat_vector_and_gradients_for_every_parameter_used(
    kind: MetaLearnerKind,
) -> None:
    learner = make(kind)
    flat = learner(160)
    assert flat.shape == (sum(slot.numel for slot in SLOTS),)
    flat.square().sum().backward()
    touched = [p.grad is not None and bool(p.grad.any()) for p in learner.parameters()]
    assert sum(touched) == (1 if kind is MetaLearnerKind.PRIVATE else len(touched))


@pytest.mark.parametrize("kind", list(MetaLearnerKind))
@pytest.mark.parametrize("resolution", PAPER)
def test_kaiming_variance_over_the_trained_range(kind: MetaLearnerKind, resolution: int) -> None:
    parts = make(kind)(resolution).detach().split([slot.numel for slot in SLOTS])
    for slot, part in zip(SLOTS, parts, strict=True):
        assert part.std().item() == pytest.approx(slot.kaiming_std, rel=0.1)


def test_kaiming_std_counts_fan_out_within_a_group() -> None:
    assert SLOTS[0].kaiming_std == pytest.approx((2 / (64 * 9)) ** 0.5)
    assert SLOTS[2].kaiming_std == pytest.approx((2 / 9) ** 0.5)


def test_linear_is_equation_2() -> None:
    learner = make(MetaLearnerKind.LINEAR)
    assert isinstance(learner, LinearMetaLearner)
    expected = 0.1 * 144 / 32 * learner.weight + learner.bias
    torch.testing.assert_close(learner(144), expected)


def test_linear_at_its_origin_is_the_bias_exactly() -> None:
    learner = make(MetaLearnerKind.LINEAR, origin=encode(224))
    assert isinstance(learner, LinearMetaLearner)
    assert torch.equal(learner(224), learner.bias)
    torch.testing.assert_close(learner(96), learner.bias + (0.3 - 0.7) * learner.weight)


@pytest.mark.parametrize(
    ("resolution", "shares"),
    [
        (256, (0.0, 0.0)),
        (192, (0.0, 0.0)),
        (160, (0.5, 0.0)),
        (128, (1.0, 0.0)),
        (120, (0.75, 0.25)),
        (96, (0.0, 1.0)),
        (64, (0.0, 1.0)),
    ],
)
def test_piecewise_is_linear_between_its_knots(
    resolution: int, shares: tuple[float, float]
) -> None:
    learner = make(MetaLearnerKind.PIECEWISE)
    assert isinstance(learner, PiecewiseLinearMetaLearner)
    with torch.no_grad():
        learner.weight.normal_()
    expected = learner.bias + shares[0] * learner.weight[0] + shares[1] * learner.weight[1]
    torch.testing.assert_close(learner(resolution), expected)
    out = torch.empty_like(learner.bias)
    with torch.no_grad():
        assert learner(resolution, out) is out
    torch.testing.assert_close(out, expected)


def test_mlp_is_relu_between_two_layers_per_convolution() -> None:
    learner = make(MetaLearnerKind.MLP_8)
    hidden = torch.relu(encode(112) * learner.hidden_weight + learner.hidden_bias)
    last = SLOTS[-1].numel
    expected = learner.weight[-last:] @ hidden[-1] + learner.bias[-last:]
    torch.testing.assert_close(learner(112)[-last:], expected)


def test_official_initialisation_is_that_of_a_linear_layer_with_one_input() -> None:
    learner = make(MetaLearnerKind.LINEAR, "official")
    for parameter in learner.parameters():
        assert parameter.abs().max() <= 1.0
        assert parameter.var().item() == pytest.approx(1 / 3, rel=0.05)


def test_private_convolutions_use_the_nearest_resolutions_kernels() -> None:
    learner = make(MetaLearnerKind.PRIVATE)
    assert torch.equal(learner(208), learner(192))
    assert not torch.equal(learner(208), learner(224))
