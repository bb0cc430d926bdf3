"""Crops for distillation: two images mixed into one, and few resolutions per batch.

A teacher that labels on the fly can label anything, so that images may be blended (mixup) or pasted
into each other (CutMix) and teacher and student still see the same picture; with few images that is
what keeps the student from learning them by heart (Beyer et al., "Knowledge distillation: a good
teacher is patient and consistent", 2022).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from training.data.augment import all_resolutions
from training.data.folder import ImageFolder
from training.data.order import Order
from training.data.samples import Sample, TrainingSamples

Pixels = dict[int, npt.NDArray[np.uint8]]


def mixup(first: Pixels, second: Pixels, rng: np.random.Generator) -> Pixels:
    """Blend two images; the first keeps at least half."""
    share = rng.uniform(0.5, 1.0)
    return {
        side: np.rint(share * first[side] + (1.0 - share) * second[side]).astype(np.uint8)
        for side in first
    }


def cutmix(first: Pixels, second: Pixels, rng: np.random.Generator) -> Pixels:
    """Paste a square of the second, a tenth to half of the area, at the same place everywhere."""
    edge = math.sqrt(rng.uniform(0.1, 0.5))
    left, top = rng.uniform(0.0, 1.0 - edge, 2)
    mixed = {}
    for side, pixels in first.items():
        x0, x1, y0, y1 = (round(side * v) for v in (left, left + edge, top, top + edge))
        mixed[side] = pixels.copy()
        mixed[side][y0:y1, x0:x1] = second[side][y0:y1, x0:x1]
    return mixed


@dataclass(frozen=True)
class ResolutionDraw:
    """Which resolutions a batch holds: some always, and `count` drawn from others."""

    always: tuple[int, ...]
    others: tuple[int, ...]
    count: int = 1

    def __call__(self, rng: np.random.Generator) -> tuple[int, ...]:
        """Draw, largest first."""
        count = min(self.count, len(self.others))
        drawn = rng.permutation(len(self.others))[:count]
        chosen = {*self.always, *(self.others[i] for i in drawn)}
        return tuple(sorted(chosen, reverse=True))


@dataclass(frozen=True)
class SteppedOrder(Order):
    """An order whose keys also tell the step, for what all images of a batch have in common."""

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[list[tuple[int, ...]]]:  # type: ignore[override]
        """Yield batches of (epoch, image, step)."""
        for count, batch in enumerate(super().batches(epoch, first_step)):
            step = first_step + count // self.accumulate
            yield [(*key, step) for key in batch]


class MixedSamples(TrainingSamples):
    """Random crops, some of them mixed with a crop of another image. A key is (epoch, image, step).

    As in `TrainingSamples` everything random depends on the seed and the key alone.
    """

    def __init__(
        self,
        folder: ImageFolder,
        draw: ResolutionDraw,
        *,
        seed: int,
        area: float,
        flip: bool,
        interpolation: str,
        mixup: float,
        cutmix: float,
    ) -> None:
        resolutions = tuple(sorted({*draw.always, *draw.others}, reverse=True))
        super().__init__(
            folder, resolutions, seed=seed, area=area, flip=flip, interpolation=interpolation
        )
        self.draw = draw
        self.mixup = mixup
        self.cutmix = cutmix

    def __getitem__(self, key: tuple[int, ...]) -> Sample:
        epoch, index, step = key
        sides = self.draw(np.random.default_rng([self.seed, epoch, step, 1]))
        rng = np.random.default_rng([self.seed, epoch, index])
        kind, partner = rng.random(), int(rng.integers(len(self.folder)))
        image, current, unreadable = self._readable(index)
        if image is None:
            return Sample({}, self.folder.labels[index], index, unreadable)
        pixels = self._crop(image, sides, rng)
        if kind < self.mixup + self.cutmix:
            other, _, more = self._readable(partner)
            unreadable += more
            if other is not None:
                mix = mixup if kind < self.mixup else cutmix
                pixels = mix(pixels, self._crop(other, sides, rng), rng)
        tensors = {side: torch.from_numpy(array) for side, array in pixels.items()}
        return Sample(tensors, self.folder.labels[current], current, unreadable)

    def _crop(self, image: Image.Image, sides: Sequence[int], rng: np.random.Generator) -> Pixels:
        return all_resolutions(
            image, sides, area=self.area, flip=self.flip, interpolation=self.interpolation, rng=rng
        )
