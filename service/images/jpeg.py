"""The short way from a JPEG to what the network sees; Pillow's is the long one, and the reference.

libjpeg-turbo decodes at a half, a quarter, … of the size where that suffices, into the memory that
Pillow then crops and resizes in one step, as the reference does. Both let go of the interpreter, so
decoder threads run side by side (`python -m benchmarks.decode`).
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from san_core.preprocessing import Preprocessing
from service.images.header import SCAN, reduction, segments

_ORIENTATION = 0x0112
_EXIF = 0xE1


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
    marker = 0
    for marker, at in segments(data):
        if marker == _EXIF and data.startswith(b"Exif\0\0", at + 4):
            break
    else:
        if marker == SCAN:
            return 1
    # There is one, or the file is too odd to be sure.
    with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
        return int(image.getexif().get(_ORIENTATION, 1))


def _upright(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Turn and mirror as EXIF asks; a centred square stays the centred square."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


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


def to_pixels(
    data: bytes,
    preprocessing: Preprocessing,
    resolution: int,
    *,
    max_pixels: int | None = None,
) -> NDArray[np.uint8] | None:
    """Decode, crop and resize a JPEG to pixels [T, T, 3], upright; None as `decode`."""
    image = decode(data, preprocessing, resolution, max_pixels=max_pixels)
    return None if image is None else image.at(resolution)


def decode(
    data: bytes,
    preprocessing: Preprocessing,
    resolution: int,
    *,
    max_pixels: int | None = None,
) -> DecodedJpeg | None:
    """Decode a JPEG at a scale that suffices for a resolution.

    None if it is not a plain JPEG (another format, CMYK, damaged, too large): the reference then
    decodes it, or says what is wrong with it.
    """
    if data[:3] != b"\xff\xd8\xff":
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        if colours not in ("YCbCr", "Gray", "RGB"):
            return None
        if max_pixels is not None and width * height > max_pixels:
            return None
        orientation = _orientation(data)
        factor = reduction(min(width, height), preprocessing.least_side(resolution))
        pixels = simplejpeg.decode_jpeg(
            data, "RGBX", min_height=height // factor, min_width=width // factor, min_factor=factor
        )
    except (ValueError, OSError, SyntaxError, TypeError):
        return None
    return DecodedJpeg(pixels, orientation, preprocessing)
