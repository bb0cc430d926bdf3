from collections.abc import Callable

import pytest
import torch

from san_core.mode import Mode
from san_core.network.architectures import build
from san_core.network.network_config import NetworkConfig
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from training.distil.blend import blend, keep_best, keep_native
from training.lift.lift import lift
from training.lift.native import pupils


@pytest.fixture
def network() -> ScaleAdaptiveNetwork:
    torch.manual_seed(0)
    return ScaleAdaptiveNetwork(NetworkConfig("mobilenet_v2", (64, 32), 3)).requires_grad_(False)


def states(network: ScaleAdaptiveNetwork) -> tuple[dict, dict]:
    start = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    network.meta_learner.weight.add_(1.0)
    end = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    return start, end


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_only_what_was_trained_moves(network: ScaleAdaptiveNetwork, share: float) -> None:
    start, end = states(network)
    blend(network, start, end, share)
    for name, tensor in network.state_dict().items():
        if name == "meta_learner.weight":
            torch.testing.assert_close(tensor, start[name] + share)
        else:
            assert torch.equal(tensor, start[name])


@pytest.mark.parametrize(
    ("score", "kept"),
    [
        (lambda moved: -abs(moved - 0.6), 0.5),
        (lambda moved: moved, 1.0),
        (lambda _: 0.0, 1.0),
    ],
)
def test_the_best_share_is_kept(
    network: ScaleAdaptiveNetwork, score: Callable[[float], float], kept: float
) -> None:
    start, _ = states(network)

    def moved() -> float:
        return float((network.meta_learner.weight - start["meta_learner.weight"]).mean())

    scores = keep_best(network, start, lambda: score(moved()), (0.25, 0.5, 1.0))
    assert scores.keys() == {0.25, 0.5, 1.0}
    assert moved() == pytest.approx(kept, abs=1e-3)


def taught(native: int = 64) -> ScaleAdaptiveNetwork:
    torch.manual_seed(0)
    state = build("mobilenet_v2", 3).state_dict()
    made = lift(
        "mobilenet_v2", {native: state}, native=native, resolutions=(64, 48, 32), num_classes=3
    )
    network = made.network.requires_grad_(False)
    network.meta_learner.weight.normal_(0.0, 0.1)
    for side in pupils(network):
        network.batch_norm(side).bias.add_(1.0)
    return network


def scores(network: ScaleAdaptiveNetwork, wins: set[int]) -> Callable[[], dict[int, float]]:
    """The pretrained network is the better one at `wins`."""

    def score() -> dict[int, float]:
        lowest = network.config.native_from or 1000
        return {r: float((r >= lowest) == (r in wins)) for r in network.resolutions}

    return score


@pytest.mark.parametrize(
    ("wins", "lowest", "compared"),
    [(set(), None, [48]), ({48}, 48, [48, 32]), ({48, 32}, 32, [48, 32]), ({32}, None, [48])],
)
def test_the_pretrained_network_stays_down_to_where_training_wins(
    wins: set[int], lowest: int | None, compared: list[int]
) -> None:
    network = taught()
    before = {side: network.generate(side) for side in (64, 48, 32)}
    assert list(keep_native(network, scores(network, wins))) == compared
    assert network.config.native_from == lowest
    for side in (48, 32):
        same = before[64 if lowest is not None and side >= lowest else side]
        for name, tensor in network.generate(side).items():
            assert torch.equal(tensor, same[name])


def test_from_there_up_every_mode_is_the_pretrained_network() -> None:
    network = taught()
    keep_native(network, scores(network, {48}))
    native = network.generate(64)
    for side in (48, 56, 72):
        for mode in Mode:
            for name, tensor in network.generate(side, mode).items():
                assert torch.equal(tensor, native[name]), (side, mode, name)
    assert not torch.equal(
        network.generate(40, Mode.DATA_FREE)["features.0.0.weight"], native["features.0.0.weight"]
    )
    assert pupils(network) == (32,)


def test_nothing_is_taken_back_where_larger_resolutions_were_taught() -> None:
    network = taught(native=48)
    assert keep_native(network, scores(network, {64, 32})) == {}
    assert network.config.native_from is None
