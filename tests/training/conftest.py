from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from san_core.network.network_config import MetaLearnerKind, NetworkConfig
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from training.runtime.distributed import Group

CLASSES = ("circle", "stripes", "checks")
ARCHITECTURE = "shufflenet_v2_x0_5"


def picture(kind: int, seed: int, side: int = 72) -> Image.Image:
    """An image whose class is its texture, whatever its colours."""
    rng = np.random.default_rng([kind, seed])
    y, x = np.mgrid[0:side, 0:side]
    shift = rng.integers(0, 12)
    mask = [
        (x - side / 2) ** 2 + (y - side / 2) ** 2 < (side / 3) ** 2,
        (x + shift) % 12 < 6,
        ((x + shift) // 9 + y // 9) % 2 == 0,
    ][kind]
    light, dark = rng.integers(150, 255, 3), rng.integers(0, 100, 3)
    pixels = np.where(mask[..., None], light, dark) + rng.integers(-10, 10, (side, side, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny ImageFolder: 12 images of each of three classes to train on, 5 to validate."""
    root = tmp_path_factory.mktemp("data")
    for split, count in (("train", 12), ("val", 5)):
        for label, name in enumerate(CLASSES):
            (root / split / name).mkdir(parents=True)
            for index in range(count):
                seed = index if split == "train" else 1000 + index
                picture(label, seed).save(root / split / name / f"{index:02}.png")
    return root


class TinyCnn(nn.Module):
    """Convolutions, batch norms and a shared head, as little as can be lifted."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        out: torch.Tensor = self.fc(self.pool(x).flatten(1))
        return out


MakeNetwork = Callable[..., ScaleAdaptiveNetwork]


@pytest.fixture
def make_network() -> MakeNetwork:
    def make(
        resolutions: tuple[int, ...] = (64, 48, 32),
        kind: MetaLearnerKind = MetaLearnerKind.LINEAR,
        *,
        shared_batch_norm: bool = False,
    ) -> ScaleAdaptiveNetwork:
        torch.manual_seed(0)
        knots = (resolutions[0], resolutions[-1]) if kind is MetaLearnerKind.PIECEWISE else ()
        config = NetworkConfig(
            "tiny",
            resolutions,
            3,
            meta_learner=kind,
            shared_batch_norm=shared_batch_norm,
            knots=knots,
        )
        return ScaleAdaptiveNetwork(config, TinyCnn())

    return make


@pytest.fixture
def alone() -> Group:
    return Group(0, 1, torch.device("cpu"))
