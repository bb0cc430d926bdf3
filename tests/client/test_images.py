"""Whatever people hold an image in becomes the bytes of a file."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from san_client.images import image_bytes

PIXELS = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)


def read(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


def test_a_path_as_text_or_path(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"image")
    assert image_bytes(str(tmp_path / "a.jpg")) == b"image"
    assert image_bytes(tmp_path / "a.jpg") == b"image"
    with pytest.raises(FileNotFoundError):
        image_bytes(str(tmp_path / "b.jpg"))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "CMYK", "P", "1", "I;16"])
def test_a_pillow_image_keeps_its_pixels(mode):
    image = Image.fromarray(PIXELS)
    image = image.convert("I").convert("I;16") if mode == "I;16" else image.convert(mode)
    found = read(image_bytes(image))
    expected = image if mode in ("RGB", "RGBA", "L", "LA") else image.convert("RGB")
    assert np.array_equal(found, np.asarray(expected))


@pytest.mark.parametrize(
    "pixels", [PIXELS, PIXELS[..., 0], PIXELS[::-1, ::-1], PIXELS[:1, :1], np.dstack([PIXELS] * 2)]
)
def test_an_array_keeps_its_pixels(pixels):
    if pixels.ndim == 3 and pixels.shape[-1] == 6:
        pixels = pixels[..., :4]
    assert np.array_equal(read(image_bytes(pixels)), pixels)


@pytest.mark.parametrize("pixels", [PIXELS / 255, PIXELS[None], PIXELS[..., :0]])
def test_an_array_of_something_else_is_refused(pixels):
    with pytest.raises(TypeError, match="uint8 pixels"):
        image_bytes(pixels)


def test_anything_else_is_told_what_is_taken(tmp_path):
    with pytest.raises(TypeError, match=r"image must be a path, bytes, .* not int"):
        image_bytes(7)
    with pytest.raises(TypeError, match=r"not a URL: fetch https://example.com/a.jpg first"):
        image_bytes("https://example.com/a.jpg")
    (tmp_path / "a.jpg").write_text("text")
    with (tmp_path / "a.jpg").open() as text, pytest.raises(TypeError, match="opened for bytes"):
        image_bytes(text)
