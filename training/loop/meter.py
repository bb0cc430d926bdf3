"""Averages of what the last steps cost, kept on the device until they are shown."""

from dataclasses import dataclass

import torch
from torch import Tensor

from training.loop.objective import Parts


@dataclass(frozen=True)
class Averages:
    """Means over the batches since the last flush."""

    loss: float
    losses: dict[str, float]
    accuracy: dict[int, float]

    def total(self, name: str) -> float:
        """Sum one kind of loss, e.g. "distillation", over the resolutions."""
        return sum(v for k, v in self.losses.items() if k.partition("/")[0] == name)


class Meter:
    """Adds up parts of batches without waiting for the device."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._hits: dict[int, Tensor] = {}
        self._batches = 0
        self._images = 0

    def add(self, parts: Parts, images: int) -> None:
        """Add a batch."""
        for name, value in {"": parts.loss, **parts.losses}.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value.clone()
        for side, value in parts.hits.items():
            self._hits[side] = self._hits[side] + value if side in self._hits else value.clone()
        self._batches += 1
        self._images += images

    def flush(self) -> Averages:
        """Return the averages and begin anew."""
        values = torch.stack([value.float() for value in self._sums.values()]).tolist()
        means = {n: v / self._batches for n, v in zip(self._sums, values, strict=True)}
        hits = {side: float(count) / self._images for side, count in self._hits.items()}
        self._clear()
        return Averages(means.pop(""), means, hits)
