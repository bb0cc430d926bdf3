from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from san_core.main_network.folding import FoldedArchitecture


class Busy(nn.Module):
    """While it is traced, another thread runs another network."""

    def __init__(self, other: nn.Module) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 1)
        self.norm = nn.BatchNorm2d(4)
        self.others: list[nn.Module] = [other]  # not one of its own
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with ThreadPoolExecutor(1) as thread:
            self.seen.append(thread.submit(self.others[0], torch.ones(1, 3, 2, 2)).result())
        folded: torch.Tensor = self.norm(self.convolution(x))
        return folded


def test_other_threads_run_their_networks_while_one_is_traced() -> None:
    other = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2)).eval().requires_grad_(False)
    expected = other(torch.ones(1, 3, 2, 2))
    busy = Busy(other)
    FoldedArchitecture(busy)
    assert len(busy.seen) == 1
    assert torch.equal(busy.seen[0], expected)
