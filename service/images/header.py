"""JPEG and PNG headers in a few microseconds, so that the event loop can look before it decides.

Only the size is read, and how often a JPEG's decoder passes over it. A file that is not plainly one
of the two, or looks odd, is left to san_core, which reads every format that is decoded, on a
decoder thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from san_core.preprocessing import ImageHeader, count_scans

_PNG = b"\x89PNG\r\n\x1a\n"
_STANDALONE = frozenset({0x01, *range(0xD0, 0xD9)})
_FRAME_HEADERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
SCAN = 0xDA
_MOST_SEGMENTS = 256
_segment = struct.Struct(">BBH").unpack_from
"""0xFF, the marker, the length: what every segment begins with."""
_COUNTED_AT_ONCE = 1_000_000
"""Scans of larger files are counted on a decoder thread."""


def reduction(shorter: int, at_least: int) -> int:
    """By how much libjpeg makes an image smaller as it decodes: 1, 2, 4 or 8, the fast ones."""
    return next((factor for factor in (8, 4, 2) if shorter >= factor * at_least), 1)


def quick_header(data: bytes) -> ImageHeader | None:
    """The header of a plain JPEG or PNG; None for anything else."""
    if data[:3] == b"\xff\xd8\xff":
        return _jpeg(data)
    if data[:8] == _PNG and data[12:16] == b"IHDR" and len(data) >= 24:
        # Animated PNGs have a chunk of their own; their frames are counted elsewhere.
        if b"acTL" in data[:4096]:
            return None
        width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
        return ImageHeader("PNG", width, height, 1) if width and height else None
    return None


def segments(data: bytes) -> Iterator[tuple[int, int]]:
    """A JPEG's segments, from the first to its scan, as (marker, where it begins).

    Ends before a scan if the file looks odd.
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
            if marker == SCAN or length < 2:
                return
            at += 2 + length


def _jpeg(data: bytes) -> ImageHeader | None:
    frame: tuple[int, int, int] | None = None  # width, height, components
    for marker, at in segments(data):
        if marker in _FRAME_HEADERS:
            height = int.from_bytes(data[at + 5 : at + 7], "big")
            width = int.from_bytes(data[at + 7 : at + 9], "big")
            if frame is not None or not (width and height) or at + 10 > len(data):
                return None
            if marker in _PROGRESSIVE:
                return _of_many_scans(data, width, height)
            frame = width, height, data[at + 9]
        elif marker == SCAN:
            if frame is None:
                return None
            # One scan of all components is the only one; libjpeg takes no other after it.
            width, height, components = frame
            if data[at + 4] == components:
                return ImageHeader("JPEG", width, height, 1)
            return _of_many_scans(data, width, height)
        elif marker == 0xE2 and data[at + 4 : at + 8] == b"MPF\x00":
            return None  # several pictures in one file (MPO) go the slow way
    return None


def _of_many_scans(data: bytes, width: int, height: int) -> ImageHeader | None:
    if len(data) > _COUNTED_AT_ONCE:
        return None
    return ImageHeader("JPEG", width, height, 1, count_scans(data))
