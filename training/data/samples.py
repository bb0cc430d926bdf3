"""Files to pixels, in loader processes: decode once, every resolution from it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from san_core.errors import ImageError
from san_core.preprocessing import Preprocessing, decode
from training.data.augment import all_resolutions, shorter_side_needed
from training.data.folder import ImageFolder

_SUBSTITUTES = 20
"""How many images that follow one that cannot be read are tried in its place. Chosen."""


@dataclass
class Sample:
    """One image at every resolution, or none if it could not be read."""

    pixels: dict[int, Tensor]
    """By resolution S: uint8 [S, S, 3]."""
    label: int
    index: int
    unreadable: list[str]
    """Files that had to be skipped on the way to this image."""


@dataclass
class RawBatch:
    """Samples put together."""

    pixels: dict[int, Tensor]
    """By resolution S: uint8 [n, S, S, 3]."""
    labels: Tensor
    indices: list[int]
    unreadable: list[str]

    def pin_memory(self) -> "RawBatch":
        """Let the loader pin the tensors for CUDA."""
        self.pixels = {side: t.pin_memory() for side, t in self.pixels.items()}
        self.labels = self.labels.pin_memory()
        return self


def collate(samples: list[Sample]) -> RawBatch:
    """Stack what could be read."""
    read = [s for s in samples if s.pixels]
    sides = read[0].pixels if read else {}
    return RawBatch(
        {side: torch.stack([s.pixels[side] for s in read]) for side in sides},
        torch.tensor([s.label for s in read], dtype=torch.long),
        [s.index for s in read],
        [name for s in samples for name in s.unreadable],
    )


def _read(folder: ImageFolder, index: int, at_least: int) -> Image.Image | None:
    try:
        return decode(folder.path(index), at_least=at_least)
    except (ImageError, OSError):
        return None


class TrainingSamples(Dataset[Sample]):
    """Random crops. A key is (epoch, index).

    The crop depends on (seed, epoch, index) alone, so that it is the same with any number of
    processes and after a resume. An unreadable image is replaced by the next one in the folder, so
    that batches keep their size.
    """

    def __init__(
        self,
        folder: ImageFolder,
        resolutions: Sequence[int],
        *,
        seed: int,
        area: float,
        flip: bool,
        interpolation: str,
    ) -> None:
        self.folder = folder
        self.resolutions = tuple(resolutions)
        self.seed = seed
        self.area = area
        self.flip = flip
        self.interpolation = interpolation
        self._at_least = shorter_side_needed(max(resolutions), area)

    def __getitem__(self, key: tuple[int, int]) -> Sample:
        epoch, index = key
        image, current, unreadable = self._readable(index)
        if image is None:
            return Sample({}, self.folder.labels[index], index, unreadable)
        pixels = all_resolutions(
            image,
            self.resolutions,
            area=self.area,
            flip=self.flip,
            interpolation=self.interpolation,
            rng=np.random.default_rng([self.seed, epoch, index]),
        )
        tensors = {side: torch.from_numpy(array) for side, array in pixels.items()}
        return Sample(tensors, self.folder.labels[current], current, unreadable)

    def _readable(self, index: int) -> tuple[Image.Image | None, int, list[str]]:
        """Return the first image from `index` on that can be read, its index, and those skipped."""
        unreadable: list[str] = []
        for step in range(_SUBSTITUTES):
            current = (index + step) % len(self.folder)
            image = _read(self.folder, current, self._at_least)
            if image is not None:
                return image, current, unreadable
            unreadable.append(self.folder.files[current])
        return None, index, unreadable


class CentreSamples(Dataset[Sample]):
    """Centre crops as the bundle's preprocessing defines them. A key is an index."""

    def __init__(
        self, folder: ImageFolder, resolutions: Sequence[int], preprocessing: Preprocessing
    ) -> None:
        self.folder = folder
        self.resolutions = tuple(resolutions)
        self.preprocessing = preprocessing

    def __getitem__(self, index: int) -> Sample:
        # Full-size decoding: accuracy is measured on exactly the pixels the paper would use.
        label = self.folder.labels[index]
        try:
            image = decode(self.folder.path(index))
        except (ImageError, OSError):
            return Sample({}, label, index, [self.folder.files[index]])
        pixels = {
            side: torch.from_numpy(np.array(self.preprocessing.to_pixels(image, side)))
            for side in self.resolutions
        }
        return Sample(pixels, label, index, [])
