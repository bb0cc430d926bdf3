"""What kind of Scale Adaptive Network it is: plain data, readable without torch."""

import math
from dataclasses import dataclass
from enum import StrEnum

from san_core.resolution import check_trained


class MetaLearnerKind(StrEnum):
    """What generates the kernels."""

    LINEAR = "linear"
    MLP_8 = "mlp8"
    MLP_16 = "mlp16"
    PRIVATE = "private"
    """Ablation: no meta learner, kernels of their own for every trained resolution."""


@dataclass(frozen=True)
class NetworkConfig:
    """What kind of Scale Adaptive Network it is."""

    architecture: str
    """Stock CNN: a torchvision name or "timm:NAME"."""
    resolutions: tuple[int, ...]
    """Trained resolutions S; kept largest first."""
    num_classes: int = 1000
    meta_learner: MetaLearnerKind = MetaLearnerKind.LINEAR
    generate_stem: bool = True
    """Whether the first convolution is generated too; the official ResNets share it."""
    shared_batch_norm: bool = False
    """Ablation: one batch norm for all resolutions."""
    origin: float = 0.0
    """Encoding at which the linear meta learner's b is the kernel; 0 in the paper."""
    native_from: int | None = None
    """From this resolution up a lifted network is the pretrained one; None: at its origin only."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "resolutions", check_trained(self.resolutions))

    @property
    def batch_norms(self) -> tuple[str, ...]:
        """Keys of the private batch norms: one per trained resolution, or the one they share."""
        return ("shared",) if self.shared_batch_norm else tuple(map(str, self.resolutions))

    def batch_norm(self, resolution: int) -> str:
        """The key of a trained resolution's batch norm."""
        return "shared" if self.shared_batch_norm else str(resolution)


@dataclass(frozen=True)
class KernelSlot:
    """A generated kernel: the convolution's name, its shape (out, in/groups, k, k), its groups."""

    name: str
    shape: tuple[int, ...]
    groups: int

    @property
    def numel(self) -> int:
        """How many numbers the kernel has."""
        return math.prod(self.shape)

    @property
    def kaiming_std(self) -> float:
        """Kaiming's standard deviation for ReLU, counted by fan-out as ResNets do."""
        out, _, *window = self.shape
        return math.sqrt(2.0 / (out * math.prod(window) / self.groups))


@dataclass(frozen=True)
class NormSlot:
    """A BN layer: its name and number of channels."""

    name: str
    channels: int
