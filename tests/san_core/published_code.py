"""The published networks as plain arithmetic over a checkpoint, to test the import against.

Written from the layout of the published checkpoints: `fcN` generates the N-th kernel of a block
from the encoding, `bnN.bn_i` normalises at the i-th resolution.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

State = dict[str, Tensor]
RESNETS = {"resnet18": (False, (2, 2, 2, 2)), "resnet50": (True, (3, 4, 6, 3))}
# expansion, channels, repetitions, stride
MOBILENET = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class _Published:
    """Draws a random checkpoint on the first run, and computes with it on every run."""

    def __init__(self, state: State | None = None, seed: int = 0) -> None:
        self.state: State = {} if state is None else state
        self.random = torch.Generator().manual_seed(seed)

    def tensor(self, name: str, *shape: int, low: float = -1.0, high: float = 1.0) -> Tensor:
        name = f"module.{name}"
        if name not in self.state:
            drawn = torch.rand(*shape, generator=self.random)
            self.state[name] = drawn * (high - low) + low
        return self.state[name]

    def conv(
        self, x: Tensor, name: str, index: int, out: int, k: int, stride: int = 1, groups: int = 1
    ) -> Tensor:
        inner = x.shape[1] // groups
        size = out * inner * k * k
        bound = (3 / (inner * k * k)) ** 0.5
        weight = self.tensor(f"{name}.weight", size, 1, low=-bound, high=bound)
        bias = self.tensor(f"{name}.bias", size, low=-bound, high=bound)
        kernel = F.linear(torch.tensor([0.7 - 0.1 * index]), weight, bias).view(out, inner, k, k)
        return F.conv2d(x, kernel, stride=stride, padding=k // 2, groups=groups)

    def norm(self, x: Tensor, name: str, index: int) -> Tensor:
        values = []
        for i in range(5):
            prefix, c = f"{name}.bn_{i}", x.shape[1]
            mean = self.tensor(f"{prefix}.running_mean", c, low=-0.2, high=0.2)
            var = self.tensor(f"{prefix}.running_var", c, low=0.5, high=2.0)
            weight = self.tensor(f"{prefix}.weight", c, low=0.5, high=1.5)
            bias = self.tensor(f"{prefix}.bias", c, low=-0.2, high=0.2)
            self.state.setdefault(f"module.{prefix}.num_batches_tracked", torch.tensor(9))
            values.append((mean, var, weight, bias))
        return F.batch_norm(x, *values[index])


def resnet(
    x: Tensor, architecture: str, index: int, state: State | None = None
) -> tuple[Tensor, State]:
    bottleneck, depths = RESNETS[architecture]
    net = _Published(state)
    stem = net.tensor("conv1.module.weight", 64, 3, 7, 7, low=-0.1, high=0.1)
    x = F.relu(net.norm(F.conv2d(x, stem, stride=2, padding=3), "bn1", index))
    x = F.max_pool2d(x, 3, 2, 1)
    for stage, depth in enumerate(depths):
        width = 64 * 2**stage
        wide = 4 * width if bottleneck else width
        for block in range(depth):
            name = f"layer{stage + 1}.{block}"
            stride = 2 if stage and not block else 1
            shapes = [(width, 1, 1), (width, 3, stride), (wide, 1, 1)]
            if not bottleneck:
                shapes = [(width, 3, stride), (width, 3, 1)]
            y = x
            for n, (out, k, s) in enumerate(shapes, 1):
                y = net.norm(net.conv(y, f"{name}.fc{n}", index, out, k, s), f"{name}.bn{n}", index)
                y = F.relu(y) if n < len(shapes) else y
            if stride != 1 or x.shape[1] != wide:
                n = len(shapes) + 1
                net.tensor(f"{name}.downsample.0.module.weight", wide, x.shape[1], 1, 1)  # dead
                net.tensor(f"{name}.downsample.1.bn_0.weight", wide)  # dead
                x = net.conv(x, f"{name}.fc{n}", index, wide, 1, stride)
                x = net.norm(x, f"{name}.bn{n}", index)
            x = F.relu(x + y)
    x = x.mean((2, 3))
    weight = net.tensor("fc.module.weight", 11, x.shape[1], low=-0.1, high=0.1)
    return F.linear(x, weight, net.tensor("fc.module.bias", 11)), net.state


def mobilenet(x: Tensor, index: int, state: State | None = None) -> tuple[Tensor, State]:
    net = _Published(state)
    x = F.relu6(net.norm(net.conv(x, "features.0.fc", index, 32, 3, 2), "features.0.bn", index))
    number = 0
    for expansion, out, repetitions, first_stride in MOBILENET:
        for repetition in range(repetitions):
            number += 1
            stride = first_stride if not repetition else 1
            hidden = x.shape[1] * expansion
            shapes = [(hidden, 1, 1, 1)] if expansion > 1 else []  # out, k, stride, groups
            shapes += [(hidden, 3, stride, hidden), (out, 1, 1, 1)]
            y = x
            for n, (channels, k, s, groups) in enumerate(shapes, 1):
                name = f"features.{number}"
                y = net.conv(y, f"{name}.fc{n}", index, channels, k, s, groups)
                y = net.norm(y, f"{name}.bn{n}", index)
                y = F.relu6(y) if n < len(shapes) else y
            x = x + y if stride == 1 and x.shape == y.shape else y
    x = F.relu6(net.norm(net.conv(x, "conv.fc", index, 1280, 1), "conv.bn", index)).mean((2, 3))
    weight = net.tensor("classifier.module.weight", 11, 1280, low=-0.1, high=0.1)
    return F.linear(x, weight, net.tensor("classifier.module.bias", 11)), net.state


def run(
    architecture: str, x: Tensor, index: int, state: State | None = None
) -> tuple[Tensor, State]:
    """Return logits at the index-th resolution and the checkpoint they were computed with."""
    if architecture == "mobilenet_v2":
        return mobilenet(x, index, state)
    return resnet(x, architecture, index, state)
