"""Images that are small to send and costly to decode, and files that are no image at all."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from functools import cache

import numpy as np
from PIL import Image

HUGE = 7071
"""Pixels a side: just below 50 megapixels."""


def _saved(pixels: np.ndarray, name: str, **options: object) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, name, **options)
    return out.getvalue()


def webp_of_one_colour() -> bytes:
    """Lossless WebP, 16383 x 3051 pixels of one colour: about as many bytes as this line."""
    bits, filled = 0, 0

    def put(value: int, count: int) -> None:
        nonlocal bits, filled
        bits |= value << filled
        filled += count

    put(16383 - 1, 14)
    put(3051 - 1, 14)
    put(0, 4)  # no alpha, version 0
    put(0, 3)  # no transform, no colour cache, no meta codes
    for _ in range(5):  # green, red, blue, alpha, distance: a code of one symbol each, 0 bits long
        put(1, 1)
        put(0, 1)
        put(0, 1)
        put(0, 1)
    body = b"\x2f" + bits.to_bytes((filled + 7) // 8, "little")
    chunk = b"VP8L" + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def bmp_of_runs() -> bytes:
    """BMP with run lengths, 50000 x 1000 pixels; each row is one pixel and its end."""
    width, height = 50_000, 1000
    runs = b"\x01\x00\x00\x00" * height + b"\x00\x01"
    palette = b"\0\0\0\0" * 256
    offset = 14 + 40 + len(palette)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(runs), 0, 0, 256, 0)
    head = b"BM" + struct.pack("<IHHI", offset + len(runs), 0, 0, offset)
    return head + info + palette + runs


def jpeg(width: int = 64, height: int = 64, **options: object) -> bytes:
    """An ordinary small JPEG."""
    return _saved(np.zeros((height, width, 3), np.uint8), "JPEG", **options)


def jpeg_of_exif(size: int = 5_000_000) -> bytes:
    """A JPEG with tiny Exif segments; joining them takes time that grows with their square."""
    segment = b"\xff\xe1" + struct.pack(">H", 18) + b"Exif\0\0" + bytes(10)
    plain = jpeg()
    return plain[:2] + segment * (size // len(segment)) + plain[2:]


def jpeg_of_fill_bytes(size: int = 20_000_000) -> bytes:
    """A JPEG that begins with as many fill bytes as fit."""
    plain = jpeg()
    return plain[:2] + b"\xff" * (size - len(plain)) + plain[2:]


def jpeg_of_scans() -> bytes:
    """A progressive JPEG whose last scan comes two thousand times."""
    plain = jpeg(4000, 4000, progressive=True)
    last = plain[plain.rindex(b"\xff\xda") : -2]
    return plain[:-2] + last * (4_000_000 // len(last)) + plain[-2:]


def jpeg_that_is_wide() -> bytes:
    """45 megapixels that cannot be made smaller as they are decoded."""
    return jpeg(65_000, 700)


def ppm_of_comments(size: int = 1_000_000) -> bytes:
    """A plain PGM whose data are comments."""
    return b"P2\n1000 1000\n255\n" + b"#\n" * (size // 2)


def pgm_with_an_odd_range(size: int = 20_000_000) -> bytes:
    """A PGM with values from 0 to 254: each is scaled in Python."""
    side = int((size - 100) ** 0.5)
    return b"P5\n%d %d\n254\n" % (side, side) + bytes(side * side)


def _tiff(tags: list[tuple[int, int, int]], data: bytes = b"", more: bytes = b"") -> bytes:
    body = struct.pack("<H", len(tags))
    for tag, kind, value in sorted(tags):
        body += struct.pack("<HHII", tag, kind, 1, value)
    return b"II*\0" + struct.pack("<I", 8) + body + struct.pack("<I", 0) + data + more


def tiff_of_directories(count: int = 30_000) -> bytes:
    """A TIFF of so many frames: whoever counts them compares each with all before."""
    entries = [
        (256, 3, 8),
        (257, 3, 8),
        (258, 3, 8),
        (259, 3, 1),
        (262, 3, 1),
        (273, 4, 8),
        (277, 3, 1),
        (278, 3, 8),
        (279, 4, 64),
    ]
    size = 2 + 12 * len(entries) + 4
    out = bytearray(b"II*\0" + struct.pack("<I", 8))
    for i in range(count):
        out += struct.pack("<H", len(entries))
        for tag, kind, value in entries:
            out += struct.pack("<HHII", tag, kind, 1, value)
        out += struct.pack("<I", 8 + size * (i + 1) if i + 1 < count else 0)
    return bytes(out)


def tiff_with_a_huge_tile() -> bytes:
    """A TIFF of 100 x 100 pixels in one tile of 32768 x 65535."""
    packed = zlib.compress(bytes(2_000_000), 1) * 8
    tags = [
        (256, 3, 100),
        (257, 3, 100),
        (258, 3, 8),
        (259, 3, 8),
        (262, 3, 1),
        (277, 3, 1),
        (322, 4, 32768),
        (323, 4, 65535),
        (324, 4, 8 + 2 + 12 * 10 + 4),
        (325, 4, len(packed)),
    ]
    return _tiff(tags, packed)


def tiff_of_floats(side: int = HUGE) -> bytes:
    """A TIFF of 50 megapixels of floating-point numbers, deflated."""
    squeeze = zlib.compressobj(1)
    row = bytes(4 * side)
    packed = b"".join(squeeze.compress(row) for _ in range(side)) + squeeze.flush()
    tags = [
        (256, 4, side),
        (257, 4, side),
        (258, 3, 32),
        (259, 3, 8),
        (262, 3, 1),
        (273, 4, 8 + 2 + 12 * 10 + 4),
        (277, 3, 1),
        (278, 4, side),
        (279, 4, len(packed)),
        (339, 3, 3),
    ]
    return _tiff(tags, packed)


def _png(width: int, height: int, depth: int, colour: int, row: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    squeeze = zlib.compressobj(1)
    line = bytes(1 + row)
    data = b"".join(squeeze.compress(line) for _ in range(height)) + squeeze.flush()
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def png_of_16_bits() -> bytes:
    """A PNG of 50 megapixels with four channels of 16 bits."""
    return _png(HUGE, HUGE, 16, 6, HUGE * 8)


def png_of_chunks(size: int = 20_000_000) -> bytes:
    """A PNG with a million empty chunks before its picture."""
    plain = _png(8, 8, 8, 2, 24)
    empty = b"\0\0\0\0prIV" + struct.pack(">I", zlib.crc32(b"prIV"))
    return plain[:33] + empty * (size // len(empty)) + plain[33:]


def png_that_lies() -> bytes:
    """A PNG of 2^31 x 2^31 pixels, it says."""
    plain = _png(8, 8, 8, 2, 24)
    return plain[:16] + b"\x7f\xff\xff\xff" * 2 + plain[24:]


def png_with_a_text_bomb() -> bytes:
    """A PNG with a compressed text of 30 MB."""
    plain = _png(8, 8, 8, 2, 24)
    text = b"k\0\0" + zlib.compress(bytes(30_000_000), 1)
    bomb = struct.pack(">I", len(text)) + b"zTXt" + text
    return plain[:33] + bomb + struct.pack(">I", zlib.crc32(b"zTXt" + text)) + plain[33:]


def png_within_limits() -> bytes:
    """A PNG of noise: almost as much work as an image may be."""
    return _saved(_noise(2600, 2500), "PNG", compress_level=0)


def webp_within_limits() -> bytes:
    """A WebP of noise: almost as much work as an image may be."""
    return _saved(_noise(1950, 1950), "WEBP", quality=80)


def jpeg_within_limits() -> bytes:
    """A plain JPEG of noise: almost as much work as an image may be."""
    return _saved(_noise(5400, 5000), "JPEG", quality=70)


def jpeg_of_progressive_noise() -> bytes:
    """A progressive JPEG of noise: almost as much work as an image may be."""
    return _saved(_noise(2800, 2600), "JPEG", quality=80, progressive=True)


def _noise(width: int, height: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (height, width, 3), np.uint8)


def photograph_of_twenty_megapixels() -> bytes:
    """A JPEG of one colour: few bytes, so that 60 of them fit into one request."""
    return jpeg(5000, 4000)


def gif_of_frames(count: int = 500_000) -> bytes:
    """A GIF of half a million frames."""
    frame = b",\0\0\0\0\1\0\1\0\0\2\2D\1\0"
    return b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff" + frame * count + b";"


ATTACKS: dict[str, Callable[[], bytes]] = {
    "webp of 28 bytes": webp_of_one_colour,
    "bmp of runs": bmp_of_runs,
    "jpeg of exif segments": jpeg_of_exif,
    "jpeg of fill bytes": jpeg_of_fill_bytes,
    "jpeg of scans": jpeg_of_scans,
    "jpeg 65000 px wide": jpeg_that_is_wide,
    "ppm of comments": ppm_of_comments,
    "ppm of comments, 8 MB": lambda: ppm_of_comments(8_000_000),
    "pgm with an odd range": pgm_with_an_odd_range,
    "tiff of directories": tiff_of_directories,
    "tiff with a huge tile": tiff_with_a_huge_tile,
    "tiff of floats": tiff_of_floats,
    "png of 16 bits": png_of_16_bits,
    "png of chunks": png_of_chunks,
    "png that lies": png_that_lies,
    "png with a text bomb": png_with_a_text_bomb,
    "gif of frames": gif_of_frames,
}
"""By name; each makes one image that takes too much."""

WITHIN_LIMITS: dict[str, Callable[[], bytes]] = {
    "png within limits": png_within_limits,
    "webp within limits": webp_within_limits,
    "jpeg within limits": jpeg_within_limits,
    "progressive within limits": jpeg_of_progressive_noise,
}
"""Each makes one image that takes almost as much as one may."""

IMAGES = ATTACKS | WITHIN_LIMITS


@cache
def attack(name: str) -> bytes:
    """One of the attacks; made once."""
    return IMAGES[name]()
