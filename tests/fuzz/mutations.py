"""Small drawn images in every format that is decoded, and ways to damage them."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator

from PIL import Image, ImageDraw


def drawn(mode: str = "RGB", width: int = 64, height: int = 48, shift: int = 0) -> Image.Image:
    """A picture that gives a decoder something to do."""
    image = Image.new("RGB", (width, height), (30, 60, 90))
    pen = ImageDraw.Draw(image)
    pen.ellipse((5 + shift, 5, 40 + shift, 40), fill=(200, 40, 40))
    pen.line((0, height, width, 0), fill=(250, 250, 10), width=3)
    return image.convert(mode)


def encoded(image: Image.Image, image_format: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, image_format, **options)
    return out.getvalue()


def originals() -> list[bytes]:
    """Intact files, of every kind."""
    turned = Image.Exif()
    turned[0x0112] = 6
    frames = [drawn(shift=shift) for shift in (4, 8, 12)]
    return [
        encoded(drawn(), "JPEG"),
        encoded(drawn(), "JPEG", progressive=True),
        encoded(drawn(), "JPEG", exif=turned, quality=30),
        encoded(drawn("CMYK"), "JPEG"),
        encoded(drawn("L"), "JPEG"),
        encoded(drawn(), "PNG"),
        encoded(drawn("P"), "PNG"),
        encoded(drawn("RGBA"), "PNG", exif=turned),
        encoded(drawn("L").convert("I;16"), "PNG"),
        encoded(drawn(), "PNG", save_all=True, append_images=frames),
        encoded(drawn(), "WEBP"),
        encoded(drawn("RGBA"), "WEBP", lossless=True),
        encoded(drawn(), "WEBP", save_all=True, append_images=frames),
        encoded(drawn("P"), "GIF"),
        encoded(drawn(), "GIF", save_all=True, append_images=frames),
        encoded(drawn(), "BMP"),
        encoded(drawn(), "TIFF"),
        encoded(drawn(), "TIFF", compression="tiff_lzw"),
        encoded(drawn(), "TIFF", compression="jpeg"),
        encoded(drawn(), "PPM"),
        encoded(drawn(), "AVIF"),
    ]


def flip(data: bytearray, rng: random.Random, _: list[bytes]) -> bytearray:
    for _i in range(rng.choice((1, 2, 5, 20, 100))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return data


def flip_header(data: bytearray, rng: random.Random, _: list[bytes]) -> bytearray:
    for _i in range(rng.choice((1, 2, 4))):
        data[rng.randrange(min(len(data), 80))] = rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
    return data


def truncate(data: bytearray, rng: random.Random, _: list[bytes]) -> bytearray:
    return data[: rng.randrange(1, len(data))]


def cut(data: bytearray, rng: random.Random, _: list[bytes]) -> bytearray:
    begin, end = sorted(rng.randrange(len(data)) for _i in range(2))
    return data[:begin] + data[end:]


def repeat(data: bytearray, rng: random.Random, _: list[bytes]) -> bytearray:
    begin, end = sorted(rng.randrange(len(data)) for _i in range(2))
    return data[:end] + data[begin:end] * rng.choice((1, 3)) + data[end:]


def splice(data: bytearray, rng: random.Random, others: list[bytes]) -> bytearray:
    other = rng.choice(others)
    return data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]


def blank(data: bytearray, rng: random.Random, _: list[bytes]) -> bytearray:
    begin, end = sorted(rng.randrange(len(data)) for _i in range(2))
    data[begin:end] = bytes([rng.choice((0, 0xFF))]) * (end - begin)
    return data


MUTATIONS = (flip, flip_header, truncate, cut, repeat, splice, blank)


def mutated(count: int, seed: int) -> Iterator[bytes]:
    """Damaged images; the same ones for a seed."""
    rng = random.Random(seed)
    files = originals()
    for _ in range(count):
        data = bytearray(rng.choice(files))
        for mutate in rng.choices(MUTATIONS, k=rng.choice((1, 1, 2))):
            data = mutate(data, rng, files) or bytearray(b"\0")
        yield bytes(data)
