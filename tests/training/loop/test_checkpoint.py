import resource
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.training.conftest import MakeNetwork
from training.errors import CheckpointError
from training.loop import checkpoint
from training.loop.checkpoint import Checkpoint
from training.loop.ema import WeightAverage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / checkpoint.FILE_NAME


def test_what_is_saved_is_loaded(path: Path) -> None:
    tensors = {"network/a": torch.randn(3, 4), "optimizer/step/a": torch.tensor(5.0)}
    checkpoint.save(path, Checkpoint(tensors, {"position": {"epoch": 2}}))
    kept = checkpoint.load(path)
    assert kept.state == checkpoint.read_state(path) == {"position": {"epoch": 2}}
    assert kept.under("network/").keys() == {"a"}
    assert all(torch.equal(kept.tensors[name], value) for name, value in tensors.items())


def test_a_full_disk_leaves_the_last_good_checkpoint(path: Path) -> None:
    checkpoint.save(path, Checkpoint({"a": torch.ones(4)}, {"step": 1}))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # as a full disk: writes fail
    try:
        with pytest.raises(CheckpointError, match="could not be written"):
            checkpoint.save(path, Checkpoint({"a": torch.zeros(100_000)}, {"step": 2}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert checkpoint.load(path).state == {"step": 1}
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # nothing half-written


def test_other_files_are_refused(path: Path) -> None:
    with pytest.raises(CheckpointError, match="could not be read"):
        checkpoint.load(path)
    path.write_bytes(b"garbage that is no safetensors file")
    with pytest.raises(CheckpointError, match="could not be read"):
        checkpoint.load(path)
    checkpoint.write_atomically(path, {"a": torch.ones(1)}, {"other": "metadata"})
    for read in (checkpoint.load, checkpoint.read_state):
        with pytest.raises(CheckpointError, match="not a training checkpoint"):
            read(path)


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.SGD])
def test_an_optimizer_continues_as_if_it_had_not_stopped(
    make: type[torch.optim.Optimizer], path: Path
) -> None:
    def start() -> tuple[nn.Parameter, torch.optim.Optimizer]:
        parameter = nn.Parameter(torch.ones(5))
        options = {"momentum": 0.9} if make is torch.optim.SGD else {}
        return parameter, make([parameter], lr=0.1, **options)

    def step(parameter: nn.Parameter, optimizer: torch.optim.Optimizer, factor: float) -> None:
        parameter.grad = factor * torch.arange(5.0)
        optimizer.step()

    whole, optimizer = start()
    for factor in (1.0, 2.0, 3.0):
        step(whole, optimizer, factor)

    first, optimizer = start()
    for factor in (1.0, 2.0):
        step(first, optimizer, factor)
    tensors = checkpoint.optimizer_tensors(optimizer, {first: "p"})
    checkpoint.save(path, Checkpoint(tensors, {}))
    second, optimizer = start()
    second.data.copy_(first.data)
    state = checkpoint.load(path).under("optimizer/")
    checkpoint.restore_optimizer(optimizer, {second: "p"}, state)
    step(second, optimizer, 3.0)
    assert torch.equal(second, whole)


def test_a_module_takes_only_its_own_tensors(make_network: MakeNetwork) -> None:
    one, other = make_network(), make_network((64, 48))
    with pytest.raises(CheckpointError, match="another network"):
        checkpoint.restore_module(one, other.state_dict())
    wanted = {name: torch.full_like(t, 7) for name, t in one.state_dict().items()}
    before = one.meta_learner.weight
    checkpoint.restore_module(one, wanted)
    assert one.meta_learner.weight is before  # in place: gradients and optimizer stay bound
    assert torch.equal(before, torch.full_like(before, 7))


def test_averaged_weights_follow_and_can_be_applied_for_a_while() -> None:
    module = nn.Linear(1, 1, bias=False)
    module.weight.data.fill_(0.0)
    average = WeightAverage(module, decay=0.5)
    module.weight.data.fill_(1.0)
    average.update(module, step=100)
    assert float(average.tensors["weight"]) == 0.5
    with average.applied(module):
        assert module.weight.item() == 0.5
    assert module.weight.item() == 1.0
    again = WeightAverage(module, decay=0.5)
    again.restore(average.tensors)
    assert float(again.tensors["weight"]) == 0.5
