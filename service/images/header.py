"""What an image will cost, read from its header before anything is decoded.

Bytes and pixels say little about work: a WebP of 46 bytes can take seconds, a TIFF of 100 x 100
pixels two gigabytes. So every format that is taken has a reader here that finds, in a bounded
prefix and a bounded number of steps, how long decoding will take and how much memory, as upper
bounds for a slow core. The event loop can afford to call it for every request.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from san_core.errors import (
    CorruptImageError,
    EndlessHeaderError,
    NotAnImageError,
    UnsupportedFormatError,
)
from san_core.preprocessing import ImageHeader, count_scans, foreign_format

_STANDALONE = frozenset({0x01, *range(0xD0, 0xD9)})
_FRAME_HEADERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers without a length, and those of a frame: ITU-T T.81, table B.1."""
_PLAIN = frozenset({0xC0, 0xC1, 0xC2})
"""Baseline, extended and progressive, Huffman coded: what libjpeg-turbo decodes quickly."""
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_SCAN = 0xDA
_EXIF = 0xE1
_ORIENTATION = 0x0112
_MOST_EXIF_TAGS = 256
"""That are looked at for the orientation: a count that is read from the file has a bound."""
_MOST_SEGMENTS = 300
"""Before the picture. A colour profile may take 255, and nothing else takes many."""
_segment = struct.Struct(">BBH").unpack_from
"""0xFF, the marker, the length: what every segment begins with."""

QUICK_MS = 30.0
"""The engine's thread, if no other request needs it, decodes what costs no more, and the decoder
threads do. It is an upper bound for a slow core: about four megapixels."""
_LARGEST_SIDE = 1171
"""What the largest resolution (512) needs of the shorter side; see `Preprocessing.least_side`."""


@dataclass(frozen=True)
class Header(ImageHeader):
    """What a header says, and what decoding will cost at most."""

    plain: bool = False
    """A JPEG that is decoded in this process; anything else is left to a helper."""
    decode_ms: float = 0.0
    """Time of one core."""
    memory_bytes: int = 0
    orientation: int = 1
    """Of a JPEG, as its Exif tells it: how the picture is turned and mirrored to be upright."""

    @property
    def quick(self) -> bool:
        """Whether its cost is known and small: any thread may decode it."""
        return self.plain and self.decode_ms <= QUICK_MS


def reduction(shorter: int, at_least: int) -> int:
    """By how much libjpeg makes an image smaller as it decodes: 1, 2, 4 or 8, the fast ones."""
    if shorter < 2 * at_least:
        return 1
    return 2 if shorter < 4 * at_least else 4 if shorter < 8 * at_least else 8


def read_header(data: bytes, formats: frozenset[str]) -> Header:
    """Read the header of an image in one of these formats; raise an ImageError otherwise."""
    if data[:3] == b"\xff\xd8\xff":
        name = "JPEG"
        if name in formats:
            return read_jpeg(data)
    else:
        from service.images.formats import EXTRA_READERS, READERS  # they build on this module

        readers = READERS | EXTRA_READERS
        name = next((name for name, (is_it, _) in readers.items() if is_it(data)), "")
        if name in formats:
            return readers[name][1](data)
    named = ", ".join(sorted(formats))
    other = name or foreign_format(data[:64])
    if other:
        raise UnsupportedFormatError(f"{other} images are not decoded here; send one of {named}.")
    raise NotAnImageError(f"These bytes are not an image; send one of {named}.")


def _segments(data: bytes) -> Iterator[tuple[int, int]]:
    """A JPEG's segments, from the first to its scan, as (marker, where it begins).

    Ends before a scan if the file looks odd; raises if there are too many.
    """
    at, end = 2, len(data)
    for _ in range(_MOST_SEGMENTS):
        if at + 9 > end:
            return
        begin, marker, length = _segment(data, at)
        if begin != 0xFF:
            return
        if marker == 0xFF:  # fill byte
            at += 1
        elif marker in _STANDALONE:
            at += 2
        else:
            yield marker, at
            if marker == _SCAN or length < 2:
                return
            at += 2 + length
    raise EndlessHeaderError(
        f"The JPEG has more than {_MOST_SEGMENTS} segments before its picture."
    )


def _orientation(tiff: bytes) -> int:
    """An Exif segment is a TIFF without a picture: a directory of tags, each with its value."""
    order: Literal["little", "big"] = "little" if tiff[:2] == b"II" else "big"
    first = int.from_bytes(tiff[4:8], order)
    count = int.from_bytes(tiff[first : first + 2], order)
    for at in range(first + 2, first + 2 + 12 * min(count, _MOST_EXIF_TAGS), 12):
        if int.from_bytes(tiff[at : at + 2], order) == _ORIENTATION:
            return int.from_bytes(tiff[at + 8 : at + 10], order)
    return 1


def read_jpeg(data: bytes) -> Header:
    """Read the header of a JPEG."""
    frame: tuple[int, int, int, int] | None = None  # marker, width, height, components
    orientation: int | None = None  # of the first Exif segment
    marker = at = 0
    for marker, at in _segments(data):
        if marker in _FRAME_HEADERS:
            if frame is not None or at + 10 > len(data):
                break
            height = int.from_bytes(data[at + 5 : at + 7], "big")
            width = int.from_bytes(data[at + 7 : at + 9], "big")
            frame = (marker if data[at + 4] == 8 else 0), width, height, data[at + 9]
        elif marker == _EXIF and orientation is None and data.startswith(b"Exif\0\0", at + 4):
            end = at + 2 + int.from_bytes(data[at + 2 : at + 4])
            orientation = _orientation(data[at + 10 : end])
    if marker != _SCAN or frame is None or not (frame[1] and frame[2]):
        raise CorruptImageError(
            "The JPEG's header cannot be read: it has no picture, or more than one."
        )
    kind, width, height, components = frame
    # One scan of all components is the only one of a file that is not progressive.
    scans = 1
    if kind in _PROGRESSIVE or data[at + 4] != components:
        scans = max(1, count_scans(data))
    pixels = width * height
    decoded = pixels // reduction(min(width, height), _LARGEST_SIDE) ** 2
    plain = kind in _PLAIN and components in (1, 3)
    # As measured on noise, flat colour and photographs: entropy decoding by the byte and the block,
    # the rest by the pixel that is left; each further scan passes over all coefficients again.
    nanoseconds: float = 10 * len(data) + pixels + 10 * decoded
    memory = 6 * decoded
    if scans > 1:
        nanoseconds += 15 * len(data) + (2 + 0.5 * scans) * pixels
        memory += 2 * components * pixels
    if not plain:  # Pillow's way: four colours, or arithmetic coding
        nanoseconds += 60 * len(data) + 20 * pixels
        memory += 12 * pixels
    return Header("JPEG", width, height, scans, plain, nanoseconds / 1e6, memory, orientation or 1)
