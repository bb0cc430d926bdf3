"""What can be classified, as the bytes of an image file.

Neither numpy nor Pillow is imported: their objects are recognised by what they can do.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast


class PillowImage(Protocol):
    """A `PIL.Image.Image`."""

    mode: str

    def convert(self, mode: str) -> Any:
        """Change the mode."""

    def save(self, fp: Any, format: str, **options: Any) -> None:  # noqa: A002 - Pillow's name
        """Write a file."""


class Array(Protocol):
    """A `numpy.ndarray`, [height, width, 3] or [height, width], of uint8."""

    shape: tuple[int, ...]
    dtype: Any

    def tobytes(self) -> bytes:
        """The pixels, row by row."""


Image = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | PillowImage | Array
"""A path, the bytes of an image file, an open file, a Pillow image, or an array of RGB pixels."""

_COLOUR = {1: 0, 2: 4, 3: 2, 4: 6}
"""PNG's colour types by the number of channels."""


def image_bytes(image: Image) -> bytes:
    """The bytes of an image file."""
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, str) and image.startswith(("http://", "https://")):
        raise TypeError(f"image must be a path, not a URL: fetch {image} first")
    if isinstance(image, str | os.PathLike):
        return Path(image).read_bytes()
    if hasattr(image, "save") and hasattr(image, "mode"):
        return _of_pillow(cast(PillowImage, image))
    if hasattr(image, "dtype") and hasattr(image, "tobytes"):
        return _of_array(cast(Array, image))
    if hasattr(image, "read"):
        data = image.read()
        if isinstance(data, bytes):
            return data
        raise TypeError("the file must be opened for bytes: open(path, 'rb')")
    raise TypeError(
        "image must be a path, bytes, an open file, a Pillow image or an array of uint8 pixels, "
        f"not {type(image).__name__}"
    )


def several(images: Iterable[Image], in_flight: int) -> Iterable[Image]:
    """The images to classify at a time; a mistake must not be taken for many images."""
    if isinstance(images, str | os.PathLike | bytes | bytearray | memoryview):
        raise TypeError(
            f"images must be several images, as a list, not one {type(images).__name__}; "
            "classify() takes one"
        )
    if in_flight < 1:
        raise ValueError(f"in_flight must be at least 1, not {in_flight}")
    return images


def _of_pillow(image: PillowImage) -> bytes:
    out = io.BytesIO()
    plain = image if image.mode in ("RGB", "RGBA", "L", "LA") else image.convert("RGB")
    plain.save(out, format="PNG", compress_level=1)
    return out.getvalue()


def _of_array(image: Array) -> bytes:
    shape = tuple(image.shape)
    channels = 1 if len(shape) == 2 else shape[-1]
    if str(image.dtype) != "uint8" or len(shape) not in (2, 3) or channels not in _COLOUR:
        raise TypeError(
            "an array must hold uint8 pixels as [height, width, 3] (RGB) or [height, width], "
            f"not {image.dtype} of shape {list(shape)}"
        )
    return png(image.tobytes(), shape[1], shape[0], channels)


def png(pixels: bytes, width: int, height: int, channels: int) -> bytes:
    """Pixels as a PNG file: lossless, and hardly compressed, for time matters more."""
    row = width * channels
    raw = b"".join(b"\0" + pixels[n * row : (n + 1) * row] for n in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOUR[channels], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(raw, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )
