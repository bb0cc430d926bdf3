"""A plain JPEG to what the network sees, in this process; Pillow's way is the reference.

libjpeg-turbo decodes at a half, a quarter, … of the size where that suffices, into the memory that
Pillow then crops and resizes in one step, as the reference does. Both let go of the interpreter, so
decoder threads run side by side (`python -m benchmarks.decode`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from san_core.errors import CorruptImageError
from san_core.preprocessing import Preprocessing
from service.images.header import EXIF, reduction, segments

_ORIENTATION = 0x0112
_MOST_EXIF_TAGS = 256
"""That are looked at for the orientation: a count that is read from the file has a bound."""
_LATEST_END = 65_536
"""A picture's end marker stands in a file's last bytes, whatever follows it."""


def resize(
    pixels: NDArray[np.uint8], preprocessing: Preprocessing, resolution: int
) -> NDArray[np.uint8]:
    """Crop and resize pixels [h, w, 4], the last of them unused, to [T, T, 3]."""
    height, width, _ = pixels.shape
    # A view: Pillow keeps RGB in four bytes as well.
    image = Image.frombuffer("RGBX", (width, height), pixels, "raw", "RGBX", 0, 1)
    resized = preprocessing.to_pixels(image, resolution)
    return np.ascontiguousarray(resized[:, :, :3])


def _orientation(data: bytes) -> int:
    """What the first Exif segment says: its main directory has it, and nothing else is read."""
    for marker, at in segments(data):
        if marker == EXIF and data.startswith(b"Exif\0\0", at + 4):
            return _tagged_orientation(
                data[at + 10 : at + 2 + int.from_bytes(data[at + 2 : at + 4])]
            )
    return 1


def _tagged_orientation(tiff: bytes) -> int:
    """An Exif segment is a TIFF without a picture: a directory of tags, each with its value."""
    order: Literal["little", "big"] = "little" if tiff[:2] == b"II" else "big"
    first = int.from_bytes(tiff[4:8], order)
    count = int.from_bytes(tiff[first : first + 2], order)
    for at in range(first + 2, first + 2 + 12 * min(count, _MOST_EXIF_TAGS), 12):
        if int.from_bytes(tiff[at : at + 2], order) == _ORIENTATION:
            return int.from_bytes(tiff[at + 8 : at + 10], order)
    return 1


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
    """[h, w, 4], the last of them unused."""
    orientation: int
    preprocessing: Preprocessing

    def at(self, resolution: int) -> NDArray[np.uint8]:
        """Cropped, resized and upright: [T, T, 3]."""
        return _upright(resize(self.pixels, self.preprocessing, resolution), self.orientation)


def to_pixels(data: bytes, preprocessing: Preprocessing, resolution: int) -> NDArray[np.uint8]:
    """Decode, crop and resize a plain JPEG to pixels [T, T, 3], upright."""
    return decode(data, preprocessing, resolution).at(resolution)


def decode(data: bytes, preprocessing: Preprocessing, resolution: int) -> DecodedJpeg:
    """Decode a plain JPEG at a scale that suffices for a resolution.

    Damage that a decoder can live with is lived with, as in the reference; an end that is missing
    is not.
    """
    try:
        height, width, _, _ = simplejpeg.decode_jpeg_header(data)
        factor = reduction(min(width, height), preprocessing.least_side(resolution))
        attempt = partial(
            simplejpeg.decode_jpeg,
            data,
            "RGBX",
            min_height=height // factor,
            min_width=width // factor,
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
    return DecodedJpeg(pixels, _orientation(data), preprocessing)
