from collections.abc import Callable

import pytest
import torch

from san_core.scale_adaptive_network import NetworkConfig, ScaleAdaptiveNetwork
from training.blend import blend, keep_best


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
