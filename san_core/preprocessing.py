"""From an image file to what a network sees: defined once, for training, evaluation and service.

Decode, apply the EXIF orientation, make it RGB, resize so that the shorter side is T / crop,
take the centre T x T, normalise. Resizing and cropping are one step: the centred square with the
share `crop` of the shorter side is resampled straight to T x T, so no pixel is computed in vain.

A network knows objects by their apparent size, and a constant crop shrinks them with T (Touvron et
al., "Fixing the train-test resolution discrepancy", 2019): the crop may depend on the resolution.
"""

import io
import math
import struct
import warnings
import zlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from san_core import libtiff
from san_core.errors import (
    CorruptImageError,
    ImageError,
    ImageTooLargeError,
    NotAnImageError,
    PreprocessingError,
    UnsupportedFormatError,
)
from san_core.resolution import interpolated

if TYPE_CHECKING:
    import torch

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
"""The raster formats that are decoded; no other is ever handed to a decoder."""

MAX_PIXELS = 100_000_000
"""How many pixels `decode` takes unless told otherwise."""
# `decode` checks sizes itself; Pillow's own check would warn from whichever thread decodes.
Image.MAX_IMAGE_PIXELS = None
# Damage that a decoder can live with is no news, and remembering each sentence would be a leak.
warnings.filterwarnings("ignore", module=r"PIL\.")
libtiff.silence()

_SPARE = 2
"""A decoder that makes an image smaller changes about one answer in ten, however many pixels are
left: it is done only where twice as many are left as are needed."""

Interpolation = Literal["bilinear", "bicubic"]
_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
# What Pillow raises on broken files; its decoders are not of one mind.
_BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    EOFError,
    ArithmeticError,
    struct.error,
    zlib.error,
)


@dataclass(frozen=True)
class ImageHeader:
    """What an image's header says: no pixel has been decoded."""

    format: str
    width: int
    height: int
    scans: int = 1
    """Passes over the whole image that decoding takes; only a JPEG can have more than one."""

    @property
    def pixels(self) -> int:
        """How many pixels the first frame has."""
        return self.width * self.height


def _open(data: bytes | Path, formats: tuple[str, ...] = FORMATS) -> Image.Image:
    source = io.BytesIO(data) if isinstance(data, bytes) else data
    try:
        return Image.open(source, formats=formats)
    except FileNotFoundError as error:
        raise NotAnImageError(f"There is no file {data!s}.") from error
    except UnidentifiedImageError as error:
        raise _unidentified(data, formats) from error
    except _BROKEN as error:
        raise CorruptImageError(f"The image's header cannot be read: {error}.") from error


def _unidentified(data: bytes | Path, formats: tuple[str, ...]) -> ImageError:
    named = ", ".join(formats)
    head = data[:64] if isinstance(data, bytes) else data.read_bytes()[:64]
    other = foreign_format(head)
    if other in formats:
        return CorruptImageError(f"The {other} is corrupt: its header cannot be read.")
    if other:
        return UnsupportedFormatError(f"{other} images are not decoded here; send one of {named}.")
    return NotAnImageError(f"These bytes are not an image; send one of {named}.")


def foreign_format(head: bytes) -> str:
    """Name an image format that is known but not decoded, from a file's first bytes."""
    text = head.lstrip().lower()
    if text.startswith((b"<svg", b"<?xml")):
        return "SVG"
    if head[4:8] == b"ftyp":
        return "AVIF" if head[8:12] in (b"avif", b"avis") else "HEIF"
    signatures = {
        b"%PDF": "PDF",
        b"%!PS": "PostScript",
        b"8BPS": "Photoshop",
        b"\x00\x00\x01\x00": "ICO",
        b"\x00\x00\x00\x0cjP": "JPEG 2000",
        b"\xff\x4f\xff\x51": "JPEG 2000",
        b"\xff\x0a": "JPEG XL",
        b"\x00\x00\x00\x0cJXL": "JPEG XL",
        b"DDS ": "DDS",
        b"qoif": "QOI",
    }
    return next((name for magic, name in signatures.items() if head.startswith(magic)), "")


def count_scans(data: bytes) -> int:
    """Count a JPEG's scans by their marker, FF DA, which entropy coding never produces.

    In pairs of bytes from either end of a pair: numpy does that quickly, and without the
    interpreter's lock.
    """
    pairs = (np.frombuffer(data, "<u2", (len(data) - start) // 2, start) for start in (0, 1))
    return sum(int(np.count_nonzero(found == 0xDAFF)) for found in pairs)


def _to_rgb(image: Image.Image) -> Image.Image:
    """Make any colour mode RGB: alpha over white, 16 bits to 8, floats 0 to 1 (or 255) as grey."""
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I"):
        return _grey(np.asarray(image).astype(np.float32) / 257.0)
    if image.mode == "F":
        values = np.nan_to_num(np.asarray(image))
        return _grey(values * 255.0 if values.max(initial=0.0) <= 1.0 else values)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _grey(values: npt.NDArray[np.float32]) -> Image.Image:
    return Image.fromarray(values.round().clip(0, 255).astype(np.uint8)).convert("RGB")


def decode(
    data: bytes | Path,
    *,
    max_pixels: int = MAX_PIXELS,
    at_least: int | None = None,
    formats: tuple[str, ...] = FORMATS,
) -> Image.Image:
    """Decode an image's first frame to upright RGB.

    `max_pixels` is checked before a pixel is decoded. With `at_least` a JPEG may come out at 1/2,
    1/4 or 1/8 of its size, as long as its shorter side keeps that many pixels.
    """
    with _open(data, formats) as image:
        if image.width * image.height > max_pixels:
            raise ImageTooLargeError(
                f"The image has {image.width} x {image.height} pixels; at most {max_pixels} are "
                "taken. Send it smaller."
            )
        try:
            if at_least is not None and image.format == "JPEG":
                image.draft("RGB", (at_least, at_least))
            image.load()
            upright = ImageOps.exif_transpose(image)
            return _to_rgb(upright)
        except _BROKEN as error:
            raise CorruptImageError(f"The image is corrupt or ends early: {error}.") from error


@dataclass(frozen=True)
class Preprocessing:
    """How an upright RGB image becomes a network's input; travels in the bundle."""

    crop_ratio: float = 0.875
    """Share of the shorter side that the centre crop keeps, unless `crops` says otherwise."""
    interpolation: Interpolation = "bilinear"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    crops: tuple[tuple[int, float], ...] = ()
    """The share for some resolutions, as (resolution, share); in between it is interpolated."""

    def __post_init__(self) -> None:
        for share in (self.crop_ratio, *(share for _, share in self.crops)):
            if not 0.0 < share <= 1.0:
                raise PreprocessingError(
                    f"The crop ratio is {share}; give the share of the shorter side that the crop "
                    "keeps, above 0 and at most 1."
                )
        # Pairs: from JSON they come as lists.
        crops = sorted((resolution, share) for resolution, share in self.crops)
        object.__setattr__(self, "crops", tuple(crops))
        if len({resolution for resolution, _ in self.crops}) < len(self.crops):
            raise PreprocessingError(f"The crops {self.crops} name a resolution twice.")
        if not all(map(math.isfinite, (*self.mean, *self.std))) or min(self.std) <= 0.0:
            raise PreprocessingError(
                f"Pixels cannot be normalised by mean {self.mean} and deviation {self.std}; give "
                "finite numbers, and deviations above 0."
            )

    def crop(self, resolution: int) -> float:
        """Return the share of the shorter side that the network sees at a resolution."""
        return interpolated(self.crops, resolution) if self.crops else self.crop_ratio

    def box(self, width: int, height: int, resolution: int) -> tuple[float, float, float, float]:
        """Return the centred square (left, top, right, bottom) that the network will see."""
        side = self.crop(resolution) * min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        return left, top, left + side, top + side

    def least_side(self, resolution: int) -> int:
        """Return how many pixels the shorter side must keep if decoding makes an image smaller."""
        return math.ceil(_SPARE * resolution / self.crop(resolution))

    def to_pixels(self, image: Image.Image, resolution: int) -> npt.NDArray[np.uint8]:
        """Resize and crop an RGB image to pixels [T, T, 3]."""
        size = (resolution, resolution)
        box = self.box(image.width, image.height, resolution)
        return np.asarray(image.resize(size, _FILTERS[self.interpolation], box))

    @cached_property
    def scale(self) -> npt.NDArray[np.float32]:
        """What a pixel value 0 to 255 is multiplied by, per channel."""
        return np.asarray([1.0 / (255.0 * s) for s in self.std], np.float32)

    @cached_property
    def offset(self) -> npt.NDArray[np.float32]:
        """What is added after that, per channel."""
        return np.asarray([-m / s for m, s in zip(self.mean, self.std, strict=True)], np.float32)

    def normalise(self, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Turn pixels [..., w, 3] into the network's numbers, in the same layout."""
        numbers = pixels.astype(np.float32, order="C")
        scale, offset = _by_row(self, pixels.shape[-2])
        rows = numbers.reshape(-1, len(scale))
        np.multiply(rows, scale, out=rows)
        np.add(rows, offset, out=rows)
        return numbers

    def denormalise(self, numbers: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
        """Turn the network's numbers back into pixels, rounded to the eight bits they had."""
        values = (numbers - self.offset) / self.scale
        return values.round().clip(0, 255).astype(np.uint8)

    def __call__(self, image: Image.Image, resolution: int) -> "torch.Tensor":
        """Turn an RGB image into a tensor [3, T, T]."""
        import torch  # late: the service never gets here

        normal = self.normalise(self.to_pixels(image, resolution))
        return torch.from_numpy(normal).permute(2, 0, 1).contiguous()


@lru_cache
def _by_row(
    preprocessing: Preprocessing, width: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Scale and offset for a whole row of pixels: numpy is slow over three numbers at a time."""
    return np.tile(preprocessing.scale, width), np.tile(preprocessing.offset, width)
