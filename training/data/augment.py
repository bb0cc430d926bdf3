"""The random part of training: one crop of an image, then every resolution from it."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

Box = tuple[float, float, float, float]

_ASPECT = (3 / 4, 4 / 3)
_ATTEMPTS = 10
"""Both as torchvision's RandomResizedCrop has them."""
_RESAMPLING = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


def random_box(width: int, height: int, area: float, rng: np.random.Generator) -> Box:
    """Draw a crop: a share of the image from `area` to 1, its aspect from 3:4 to 4:3.

    The usual random-resized crop: a draw that does not fit is repeated, and after ten the largest
    centred crop of an allowed aspect is taken.
    """
    low, high = math.log(_ASPECT[0]), math.log(_ASPECT[1])
    for _ in range(_ATTEMPTS):
        pixels = width * height * rng.uniform(area, 1.0)
        aspect = math.exp(rng.uniform(low, high))
        w, h = math.sqrt(pixels * aspect), math.sqrt(pixels / aspect)
        if w <= width and h <= height:
            left, top = rng.uniform(0, width - w), rng.uniform(0, height - h)
            return left, top, left + w, top + h
    aspect = min(max(width / height, _ASPECT[0]), _ASPECT[1])
    w, h = min(width, height * aspect), min(height, width / aspect)
    left, top = (width - w) / 2, (height - h) / 2
    return left, top, left + w, top + h


def shorter_side_needed(largest: int, area: float) -> int:
    """Return the shorter side below which the smallest crop would lack pixels for `largest`.

    A JPEG may be decoded at reduced scale down to this and no crop ever notices.
    """
    return math.ceil(largest / math.sqrt(area * _ASPECT[0]))


def all_resolutions(
    image: Image.Image,
    resolutions: Sequence[int],
    *,
    area: float,
    flip: bool,
    interpolation: str,
    rng: np.random.Generator,
) -> dict[int, npt.NDArray[np.uint8]]:
    """Crop once, then resize that crop (antialiased) to every resolution: uint8 [S, S, 3] each."""
    box = random_box(image.width, image.height, area, rng)
    mirrored = flip and rng.random() < 0.5
    resample = _RESAMPLING[interpolation]
    pixels = {}
    for side in resolutions:
        scaled = np.asarray(image.resize((side, side), resample, box))
        pixels[side] = (scaled[:, ::-1] if mirrored else scaled).copy()  # Pillow's is read-only
    return pixels
