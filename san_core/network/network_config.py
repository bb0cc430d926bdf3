"""What kind of Scale Adaptive Network it is: plain data, readable without torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from san_core.errors import ArchitectureError
from san_core.resolution import check_trained, neighbours


class MetaLearnerKind(StrEnum):
    """What generates the kernels."""

    LINEAR = "linear"
    PIECEWISE = "piecewise"
    """Linear between chosen resolutions: the slope may change at each of them."""
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
    knots: tuple[int, ...] = ()
    """Where the slope of a piecewise linear meta learner changes; kept largest first."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "resolutions", check_trained(self.resolutions))
        if self.knots:
            object.__setattr__(self, "knots", check_trained(self.knots))
        if (len(self.knots) > 1) != (self.meta_learner == MetaLearnerKind.PIECEWISE):
            raise ArchitectureError(
                "A piecewise linear meta learner has two knots or more, and no other has any."
            )

    @property
    def batch_norms(self) -> tuple[str, ...]:
        """Keys of the private batch norms: one per trained resolution, or the one they share."""
        return ("shared",) if self.shared_batch_norm else tuple(map(str, self.resolutions))

    def batch_norm(self, resolution: int) -> str:
        """The key of a trained resolution's batch norm."""
        return "shared" if self.shared_batch_norm else str(resolution)


Temperatures = tuple[tuple[int, float], ...]
"""By resolution, smallest first: what logits are divided by. Empty: they stay as they are."""


def knot_shares(knots: Sequence[int], resolution: int) -> tuple[tuple[int, float], ...]:
    """Return which rows of a piecewise linear W a resolution takes, and how much of each.

    Row i belongs to knot i + 1; from the first knot up none is taken.
    """
    floor, ceil = neighbours(resolution, knots)
    share = (ceil - resolution) / (ceil - floor) if ceil != floor else 1.0
    at = ((ceil, 1.0 - share), (floor, share))
    return tuple((knots.index(k) - 1, x) for k, x in at if x and k != knots[0])


def head_tensors(shapes: Mapping[str, Sequence[int]], classes: int) -> tuple[str, ...]:
    """Name the tensors of the linear layer that makes the logits, from all shared tensors."""
    matrices = [n for n, shape in shapes.items() if len(shape) == 2 and shape[0] == classes]
    if not matrices:
        raise ArchitectureError("There is no linear head, so there can be no temperatures.")
    weight = matrices[-1]
    bias = weight.removesuffix("weight") + "bias"
    return (weight, bias) if bias in shapes else (weight,)


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
