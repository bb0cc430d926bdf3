"""Which image goes into which batch: a pure function of seed, epoch, step and process."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from training.errors import DataError


@dataclass(frozen=True)
class Order:
    """The order of images in training.

    A step takes the next `accumulate * processes * batch_size` images of the epoch's permutation;
    batch a of process r takes the part at position (a * processes + r). So p processes with one
    batch each see what one process with p accumulated batches sees, and what one process with a
    batch p times as large sees. The last, incomplete step of an epoch is left out.
    """

    images: int
    batch_size: int
    accumulate: int = 1
    processes: int = 1
    rank: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps_per_epoch == 0:
            raise DataError(
                f"There are {self.images} training images, fewer than one step takes "
                f"({self.images_per_step}). Lower --batch-size."
            )

    @property
    def images_per_step(self) -> int:
        """Images that all processes together take in one step."""
        return self.batch_size * self.accumulate * self.processes

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in one epoch."""
        return self.images // self.images_per_step

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[list[tuple[int, int]]]:
        """Yield this process's batches of (epoch, image) from `first_step` of the epoch on."""
        shuffled = np.random.default_rng([self.seed, epoch]).permutation(self.images)
        for step in range(first_step, self.steps_per_epoch):
            for micro in range(self.accumulate):
                part = (step * self.accumulate + micro) * self.processes + self.rank
                start = part * self.batch_size
                yield [(epoch, int(i)) for i in shuffled[start : start + self.batch_size]]
