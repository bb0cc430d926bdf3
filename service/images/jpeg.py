"""A plain JPEG to what the network sees, in this process; Pillow's way is the reference.

libjpeg-turbo decodes at a half, a quarter, … of the size where that suffices, and lets go of the
interpreter, so decoder threads run side by side. `cykooz.resizer` then crops and resizes in one
step with the reference's filters. It keeps the interpreter, but for a seventh of the time that
Pillow takes (`python -m benchmarks.decode`).
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from san_core.errors import CorruptImageError
from san_core.preprocessing import Preprocessing
from service.images.header import Header, read_jpeg, reduction

_LATEST_END = 65_536
"""A picture's end marker stands in a file's last bytes, whatever follows it."""


_IS_FAST = importlib.util.find_spec("cykooz_resizer") is not None
"""There is no wheel of it for Linux on ARM: Pillow resizes there."""


def resize(
    pixels: NDArray[np.uint8], preprocessing: Preprocessing, resolution: int
) -> NDArray[np.uint8]:
    """Crop and resize pixels [h, w, 3] to [T, T, 3]."""
    height, width, _ = pixels.shape
    if not _IS_FAST:
        return preprocessing.to_pixels(Image.fromarray(pixels), resolution)
    from cykooz_resizer import ImageData, PixelType, Resizer

    source = ImageData(width, height, PixelType.U8x3, pixels.tobytes())
    target = ImageData(resolution, resolution, PixelType.U8x3)
    Resizer().resize(source, target, _options(preprocessing, width, height, resolution))
    found = np.frombuffer(target.get_buffer(), np.uint8)
    return found.reshape(resolution, resolution, 3)


@lru_cache(maxsize=256)
def _options(preprocessing: Preprocessing, width: int, height: int, resolution: int) -> Any:
    from cykooz_resizer import CropBox, FilterType, ResizeAlg, ResizeOptions

    # Pillow's bicubic filter is the one that Catmull and Rom described.
    filters = {"bilinear": FilterType.bilinear, "bicubic": FilterType.catmull_rom}
    left, top, right, bottom = preprocessing.box(width, height, resolution)
    # Rounding may have put a side a hair outside.
    box = CropBox(left, top, min(right, width) - left, min(bottom, height) - top)
    return ResizeOptions(ResizeAlg.convolution(filters[preprocessing.interpolation]), crop_box=box)


def _upright(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Turn and mirror as EXIF asks; a centred square stays the centred square.

    The result lies in memory row by row, as engines want it.
    """
    if orientation in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


@dataclass(slots=True)
class DecodedJpeg:
    """A JPEG's pixels at the scale they were decoded at, as they lie in the file."""

    pixels: NDArray[np.uint8]
    """[h, w, 3]."""
    orientation: int
    preprocessing: Preprocessing

    def at(self, resolution: int) -> NDArray[np.uint8]:
        """Cropped, resized and upright: [T, T, 3]."""
        return _upright(resize(self.pixels, self.preprocessing, resolution), self.orientation)


def to_pixels(data: bytes, preprocessing: Preprocessing, resolution: int) -> NDArray[np.uint8]:
    """Decode, crop and resize a plain JPEG to pixels [T, T, 3], upright."""
    return decode(data, read_jpeg(data), preprocessing, resolution).at(resolution)


def decode(
    data: bytes, header: Header, preprocessing: Preprocessing, resolution: int
) -> DecodedJpeg:
    """Decode a plain JPEG at a scale that suffices for a resolution.

    Damage that a decoder can live with is lived with, as in the reference; an end that is missing
    is not.
    """
    try:
        factor = reduction(min(header.width, header.height), preprocessing.least_side(resolution))
        attempt = partial(
            simplejpeg.decode_jpeg,
            data,
            "RGB",
            min_height=header.height // factor,
            min_width=header.width // factor,
            min_factor=factor,
        )
        try:
            pixels = attempt()
        except ValueError:
            if b"\xff\xd9" not in data[-_LATEST_END:]:
                raise
            pixels = attempt(strict=False)
    except (ValueError, TypeError) as error:
        raise CorruptImageError(f"The image is corrupt or ends early: {error}.") from None
    return DecodedJpeg(pixels, header.orientation, preprocessing)
