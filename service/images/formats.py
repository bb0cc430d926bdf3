"""Headers of the formats that helpers decode, and what each costs.

Nanoseconds are those of a slow core per pixel and per byte, memory is what Pillow takes at its
peak, copies included. Times of PNG and WebP were measured on four megapixels of noise, flat colour
and a smooth picture; the rest are estimates. A helper's own limits hold if one is too low.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec

from san_core.errors import CorruptImageError
from service.images.header import Header

_PNG = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Values of a pixel by a PNG's colour type."""
_PPM_PREFIX = 1024
"""Bytes in which the header must end: comments could make it as long as the file."""
_PPM = re.compile(rb"(P[1-6fF])(?:\s|#[^\n]*\n)+(\d{1,6})(?:\s|#[^\n]*\n)+(\d{1,6})\s*")
_PPM_NUMBER = re.compile(rb"(?:\s|#[^\n]*\n)*(\d{1,6})\s")
_EXTENT = re.compile(rb"ispe")
_BOXES_PREFIX = 16_384
"""Phones write grids of tiles, with a list of a hundred items before the sizes."""
_TIFF_ENTRIES = 512
"""Tags of one directory: a count that is read from the file must have a bound."""
_TIFF_TYPES = {1: 1, 3: 2, 4: 4}
"""Of the numbers that are read: byte, short, long."""


def _cost(
    name: str,
    size: tuple[int, int],
    data: bytes,
    *,
    per_pixel: float,
    per_byte: float,
    memory: float,
) -> Header:
    """A header whose costs grow with the pixels (ns and bytes for each) and with the file (ns)."""
    width, height = size
    if not (width and height):
        raise CorruptImageError(f"The {name} has no pixels: {width} x {height}.")
    nanoseconds = per_pixel * width * height + per_byte * len(data)
    return Header(name, width, height, 1, False, nanoseconds / 1e6, int(memory * width * height))


def _need(data: bytes, size: int, name: str) -> None:
    if len(data) < size:
        raise CorruptImageError(f"The {name} ends within its header.")


def _png(data: bytes) -> Header:
    _need(data, 33, "PNG")
    if data[12:16] != b"IHDR" or data[25] not in _CHANNELS:
        raise CorruptImageError("The PNG does not begin with its header.")
    size = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    depth, colour = data[24], data[25]
    row = _CHANNELS[colour] * max(depth, 8) / 8  # bytes of a pixel once it is unpacked
    # Inflating and unfiltering by the byte; transparency is laid over white, 16 bits made 8.
    has_alpha = colour != 2 or b"tRNS" in data[33:4096]
    wide = depth == 16
    return _cost(
        "PNG",
        size,
        data,
        per_pixel=8 * row + (12 if has_alpha else 0) + (10 if wide else 0),
        per_byte=2,
        memory=(16 if has_alpha else 4) + (8 if wide else 0),
    )


def _webp(data: bytes) -> Header:
    kind = data[12:16]
    _need(data, 25 if kind == b"VP8L" else 30, "WebP")
    if kind == b"VP8X":
        size = (
            int.from_bytes(data[24:27], "little") + 1,
            int.from_bytes(data[27:30], "little") + 1,
        )
    elif kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        size = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        size = (
            int.from_bytes(data[26:28], "little") & 0x3FFF,
            int.from_bytes(data[28:30], "little") & 0x3FFF,
        )
    else:
        raise CorruptImageError("The WebP does not begin with its header.")
    # Pillow's decoder keeps two canvases of four bytes a pixel, and copies.
    return _cost("WEBP", size, data, per_pixel=35, per_byte=40, memory=20)


def _gif(data: bytes) -> Header:
    _need(data, 13, "GIF")
    size = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    return _cost("GIF", size, data, per_pixel=35, per_byte=20, memory=17)


def _bmp(data: bytes) -> Header:
    _need(data, 34, "BMP")
    if int.from_bytes(data[14:18], "little") == 12:
        size = int.from_bytes(data[18:20], "little"), int.from_bytes(data[20:22], "little")
        packed = False
    else:
        width, height = (int.from_bytes(data[i : i + 4], "little", signed=True) for i in (18, 22))
        size = abs(width), abs(height)
        packed = data[30] in (1, 2)
    # Run lengths are undone in Python, pixel by pixel.
    return _cost("BMP", size, data, per_pixel=2000 if packed else 15, per_byte=5, memory=16)


def _tiff(data: bytes) -> Header:
    order = "little" if data[:2] == b"II" else "big"

    def number(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], order)  # type: ignore[arg-type]

    first = number(4, 4)
    count = number(first, 2)
    if first + 2 + 12 * count > len(data) or not 0 < count <= _TIFF_ENTRIES:
        raise CorruptImageError("The TIFF's first directory is not within the file, or too long.")
    tags: dict[int, int] = {}
    for at in range(first + 2, first + 2 + 12 * count, 12):
        kind = number(at + 2, 2)
        if kind in _TIFF_TYPES:
            # More values than fit stand elsewhere; samples are never that deep.
            inline = number(at + 4, 4) * _TIFF_TYPES[kind] <= 4
            tags[number(at, 2)] = number(at + 8, _TIFF_TYPES[kind]) if inline else 0
    width, height = tags.get(256, 0), tags.get(257, 0)
    samples = max(1, tags.get(277, 1))
    depth = (tags.get(258, 8) or 16) / 8 * samples
    # What is decoded at once: a tile or a strip, whatever the image's own size.
    tile = tags.get(322, 0) * tags.get(323, 0)
    strip = width * min(tags.get(278, height), height)
    touched = max(width * height, tile, strip)
    found = _cost(
        "TIFF", (width, height), data, per_pixel=0, per_byte=20, memory=24 + 2 * max(depth, 1)
    )
    return Header(
        "TIFF",
        width,
        height,
        decode_ms=found.decode_ms + touched * (15 * depth + 20) / 1e6,
        memory_bytes=found.memory_bytes + int(touched * depth),
    )


def _ppm(data: bytes) -> Header:
    head = data[:_PPM_PREFIX]
    sizes = _PPM.match(head)
    if sizes is None:
        raise CorruptImageError("The PPM's header cannot be read from its first 1024 bytes.")
    kind, width, height = sizes[1], int(sizes[2]), int(sizes[3])
    largest = 255
    if kind not in (b"P1", b"P4", b"Pf", b"PF"):
        found = _PPM_NUMBER.match(head, sizes.end())
        largest = int(found[1]) if found else 0
    # Plain text, and every range but 0 to 255, are read in Python: by the byte, or by the pixel.
    plain = kind in (b"P1", b"P2", b"P3")
    slow = largest != 255
    return _cost(
        "PPM",
        (width, height),
        data,
        per_pixel=800 if slow else 20,
        per_byte=2000 if plain else 2,
        memory=24,
    )


def _largest_extent(data: bytes, name: str) -> tuple[int, int]:
    """The largest of the sizes that a file of boxes tells: a grid's tiles have theirs as well."""
    found = [
        (
            int.from_bytes(data[at + 8 : at + 12], "big"),
            int.from_bytes(data[at + 12 : at + 16], "big"),
        )
        for at in (match.start() for match in _EXTENT.finditer(data, 0, _BOXES_PREFIX))
        if at + 16 <= len(data)
    ]
    if not found:
        raise CorruptImageError(
            f"The {name} does not tell its size within its first {_BOXES_PREFIX} bytes."
        )
    return max(found, key=lambda size: size[0] * size[1])


def _avif(data: bytes) -> Header:
    size = _largest_extent(data, "AVIF")
    return _cost("AVIF", size, data, per_pixel=60, per_byte=100, memory=20)


def _heif(data: bytes) -> Header:
    size = _largest_extent(data, "HEIF")
    return _cost("HEIF", size, data, per_pixel=80, per_byte=150, memory=20)


Reader = Callable[[bytes], Header]

READERS: dict[str, tuple[Callable[[bytes], bool], Reader]] = {
    "PNG": (lambda d: d[:8] == _PNG, _png),
    "WEBP": (lambda d: d[:4] == b"RIFF" and d[8:12] == b"WEBP", _webp),
    "GIF": (lambda d: d[:6] in (b"GIF87a", b"GIF89a"), _gif),
    "BMP": (lambda d: d[:2] == b"BM", _bmp),
    "TIFF": (lambda d: d[:4] in (b"II*\0", b"MM\0*"), _tiff),
    "PPM": (lambda d: d[:1] == b"P" and d[1:2] in b"123456fF" and d[2:3].isspace(), _ppm),
    "AVIF": (lambda d: d[4:8] == b"ftyp" and d[8:12] in (b"avif", b"avis"), _avif),
}
"""By format: how to tell it from its first bytes, and what reads its header."""

FORMATS = ("JPEG", *READERS)
"""Every format that Pillow decodes by itself; `SAN_FORMATS` says which are taken."""

HEIF = "HEIF"
_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1")
EXTRA_READERS: dict[str, tuple[Callable[[bytes], bool], Reader]] = {
    HEIF: (lambda d: d[4:8] == b"ftyp" and d[8:12] in _BRANDS, _heif),
}
"""Formats that need a further package: HEIF, which phones write, needs `pi-heif`."""


def decodable() -> tuple[str, ...]:
    """Every format that can be decoded with the packages that are installed."""
    return FORMATS if find_spec("pi_heif") is None else (*FORMATS, HEIF)
