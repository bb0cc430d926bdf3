"""HEIF, as phones write it: what a header tells, and a helper that decodes it."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from san_core.errors import CorruptImageError, UnsupportedFormatError
from san_core.preprocessing import Preprocessing
from service import settings
from service.images.formats import HEIF
from service.images.header import read_header
from service.images.helper_pool import HelperPool
from service.settings import Settings

# A red disc at (160, 120) and a blue bar on the left, 320 x 240, drawn for this test.
DRAWN = (Path(__file__).parent / "drawn.heic").read_bytes()


def test_the_header_tells_the_size_and_bounds_the_cost():
    header = read_header(DRAWN, frozenset({HEIF}))
    assert (header.format, header.width, header.height) == (HEIF, 320, 240)
    assert header.decode_ms > 0
    assert not header.plain
    at = DRAWN.index(b"ispe")
    tile = b"ispe" + bytes(4) + (64).to_bytes(4, "big") * 2
    grid = DRAWN[: at - 4] + (20).to_bytes(4, "big") + tile + DRAWN[at - 4 :]
    assert read_header(grid, frozenset({HEIF})).width == 320  # not that of a tile
    with pytest.raises(CorruptImageError, match="size"):
        read_header(DRAWN[:64], frozenset({HEIF}))


def test_it_is_not_taken_unless_it_is_asked_for():
    with pytest.raises(UnsupportedFormatError, match="HEIF images are not decoded here"):
        read_header(DRAWN, frozenset(Settings().formats))


def test_a_helper_decodes_it():
    pool = HelperPool(1, memory_bytes=128_000_000, formats=(HEIF,), max_pixels=50_000_000)
    try:
        pixels, *_ = asyncio.run(pool.decode(DRAWN, Preprocessing(), 96, cpu_ms=2000))
    finally:
        pool.close()
    red, green, blue = pixels[48, 48].astype(int)
    assert red > 150 > 100 > max(green, blue)
    assert not np.array_equal(pixels[48, 48], pixels[2, 90])


def test_without_its_package_the_setting_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(settings, "find_spec", lambda name: None)
    with pytest.raises(ValidationError, match="san-serve\\[heif\\]"):
        Settings(formats=("JPEG", HEIF))
