"""An average of the weights over the last steps, if the recipe wants one."""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from training.loop.checkpoint import restore_module


class WeightAverage:
    """Exponential moving average of all tensors of a module."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.tensors = {k: v.detach().clone() for k, v in module.state_dict().items()}

    @torch.no_grad()
    def update(self, module: nn.Module, step: int) -> None:
        """Move towards the module; the first steps count more, else the start would linger."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                self.tensors[name].lerp_(value, 1.0 - decay)
            else:
                self.tensors[name].copy_(value)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint's average."""
        for name, value in tensors.items():
            self.tensors[name].copy_(value)

    @contextlib.contextmanager
    def applied(self, module: nn.Module) -> Iterator[None]:
        """Let the module have the averaged weights for a while."""
        own = {k: v.detach().clone() for k, v in module.state_dict().items()}
        restore_module(module, self.tensors)
        try:
            yield
        finally:
            restore_module(module, own)
