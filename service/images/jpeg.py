"""The short way from a JPEG to what the network sees; Pillow's is the long one, and the reference.

libjpeg-turbo decodes at a half, a quarter, … of the size where that suffices, torch's 8-bit kernels
crop and resize. Both let go of the interpreter, so decoder threads run side by side. Half the time
of the reference for a photograph of 500 pixels, and the same top-1 (`python -m benchmarks.decode`).

The crop is rounded to whole pixels of the decoded image, where the reference cuts through them.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import numpy as np
import simplejpeg
import torch
from numpy.typing import NDArray
from PIL import Image
from threadpoolctl import ThreadpoolController
from torch.nn import functional

from san_core.preprocessing import Preprocessing
from service.images.header import SCAN, reduction, segments

_ORIENTATION = 0x0112
_EXIF = 0xE1
_openmp = ThreadpoolController().select(user_api="openmp")


_alone: Callable[[], AbstractContextManager[object]] = (
    nullcontext
    if torch.backends.cpu.get_cpu_capability().startswith("AVX")
    else partial(_openmp.limit, limits=1)
)
"""Has torch resize on this thread only, as it does by itself with AVX. Helpers would be no faster,
and then spin for milliseconds on cores the engine needs."""


def _crop(preprocessing: Preprocessing, width: int, height: int) -> tuple[slice, slice]:
    """Return the rows and columns of the centred square, in whole pixels."""
    left, top, right, _ = preprocessing.box(width, height)
    side = max(1, round(right - left))
    x, y = round(left), round(top)
    x, y = min(x, width - side), min(y, height - side)
    return slice(y, y + side), slice(x, x + side)


def resize(
    pixels: NDArray[np.uint8], preprocessing: Preprocessing, resolution: int
) -> NDArray[np.uint8]:
    """Crop and resize pixels [h, w, 3] to [T, T, 3]."""
    height, width, _ = pixels.shape
    rows, columns = _crop(preprocessing, width, height)
    square = np.ascontiguousarray(pixels[rows, columns])
    with _alone():
        resized = functional.interpolate(
            # A view: NHWC is channels_last.
            torch.from_numpy(square.reshape(1, *square.shape).transpose(0, 3, 1, 2)),
            (resolution, resolution),
            mode=preprocessing.interpolation,
            antialias=True,
        )
    result: NDArray[np.uint8] = resized.numpy()[0].transpose(1, 2, 0)
    return result


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


def to_pixels(
    data: bytes,
    preprocessing: Preprocessing,
    resolution: int,
    *,
    max_pixels: int | None = None,
) -> NDArray[np.uint8] | None:
    """Decode, crop and resize a JPEG to pixels [T, T, 3], upright.

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
            data, "RGB", min_height=height // factor, min_width=width // factor, min_factor=factor
        )
    except (ValueError, OSError, SyntaxError, TypeError):
        return None
    return _upright(resize(pixels, preprocessing, resolution), orientation)
