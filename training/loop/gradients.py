"""All gradients of a step in one flat buffer: summed, averaged and clipped as one.

A step runs one backward pass per resolution, and each leaves the other resolutions' private batch
norms untouched. Averaging per pass, as DistributedDataParallel does, would wait for gradients that
never come or average some twice. Here every pass adds into views of one buffer, and the buffer is
averaged over the processes exactly once per step, whichever processes took part in a pass.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from training.runtime.distributed import Group


class FlatGradients:
    """The gradients of some parameters as views of one buffer.

    The statistics of batch norm and a request to stop ride along, so that a step costs one
    all-reduce and afterwards every process holds the same state.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], statistics: Sequence[Tensor]) -> None:
        self._parameters = list(parameters)
        self._statistics = list(statistics)
        device = self._parameters[0].device
        self._count = sum(p.numel() for p in self._parameters)
        tail = sum(s.numel() for s in self._statistics)
        self._flat = torch.zeros(self._count + tail + 1, device=device)
        offset = 0
        for parameter in self._parameters:
            parameter.grad = self._flat[offset : offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()

    @property
    def flat(self) -> Tensor:
        """The gradients of all parameters, one after another."""
        return self._flat[: self._count]

    def zero(self) -> None:
        """Start a step."""
        self._flat.zero_()

    def average(self, group: Group, *, stop: bool = False) -> bool:
        """Average over the processes; return whether any of them wants to stop."""
        if group.size == 1:
            return stop
        self._flat[-1] = float(stop)
        sizes = [s.numel() for s in self._statistics]
        parts = torch.split(self._flat[self._count : -1], sizes)
        for part, own in zip(parts, self._statistics, strict=True):
            part.copy_(own.reshape(-1))
        group.sum(self._flat)
        self._flat.div_(group.size)
        for part, own in zip(parts, self._statistics, strict=True):
            own.copy_(part.view_as(own))
        return bool(self._flat[-1].item() > 0)

    def clip(self, norm: float) -> None:
        """Shrink the gradient to `norm` if it is longer."""
        length = torch.linalg.vector_norm(self.flat)
        self.flat.mul_(torch.clamp(norm / (length + 1e-6), max=1.0))
