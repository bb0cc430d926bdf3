import pytest
import torch
from torch import nn

from tests.training.conftest import MakeNetwork
from training.config import Recipe
from training.loop.gradients import FlatGradients
from training.loop.optimizer import make_optimizer
from training.runtime.distributed import Group


def two_parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(3))]


def test_backward_adds_into_one_buffer_and_untouched_parameters_have_zero() -> None:
    used, unused = two_parameters()
    gradients = FlatGradients([used, unused], [])
    for factor in (2.0, 3.0):
        torch.autograd.backward((factor * used).sum())
    assert gradients.flat.tolist() == [5.0] * 4 + [0.0] * 3
    assert used.grad is not None
    assert used.grad.data_ptr() == gradients.flat.data_ptr()
    gradients.zero()
    assert float(used.grad.sum()) == 0.0


def test_one_process_averages_nothing_and_passes_a_request_to_stop_on(alone: Group) -> None:
    gradients = FlatGradients(two_parameters(), [])
    gradients.flat.fill_(2.0)
    assert gradients.average(alone) is False
    assert gradients.average(alone, stop=True) is True
    assert gradients.flat.tolist() == [2.0] * 7


def test_clipping_shortens_but_never_lengthens() -> None:
    gradients = FlatGradients(two_parameters(), [])
    gradients.flat.copy_(torch.tensor([3.0, 0, 0, 0, 4.0, 0, 0]))
    gradients.clip(10.0)
    assert float(gradients.flat.norm()) == pytest.approx(5.0)
    gradients.clip(1.0)
    assert float(gradients.flat.norm()) == pytest.approx(1.0, abs=1e-5)


def test_weight_decay_can_leave_norms_and_biases_out(make_network: MakeNetwork) -> None:
    named = list(make_network().named_parameters())
    everything = make_optimizer(named, Recipe())
    assert [g["weight_decay"] for g in everything.param_groups] == [1e-4]
    kernels_only = make_optimizer(named, Recipe(decay_norms=False))
    decayed, free = kernels_only.param_groups
    assert (decayed["weight_decay"], free["weight_decay"]) == (1e-4, 0.0)
    names = {id(p): name for name, p in named}
    assert {names[id(p)] for p in decayed["params"]} == {
        "meta_learner.weight",
        "meta_learner.bias",
        "shared.fc/weight",
    }
    assert isinstance(make_optimizer(named, Recipe(optimizer="adamw")), torch.optim.AdamW)
