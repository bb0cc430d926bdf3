import _ctypes
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import v2

from san_core import libtiff
from san_core.errors import (
    CorruptImageError,
    ImageError,
    ImageTooLargeError,
    NotAnImageError,
    PreprocessingError,
    UnsupportedFormatError,
)
from san_core.preprocessing import Preprocessing, decode


def photo(width: int = 300, height: int = 200) -> Image.Image:
    """Draw a smooth coloured picture: what reduced-scale decoding must reproduce."""
    x, y = np.meshgrid(np.linspace(0, 3, width), np.linspace(0, 3, height))
    channels = [np.sin(x + y), np.cos(2 * x), np.sin(x * y)]
    return Image.fromarray((127 + 120 * np.stack(channels, -1)).astype(np.uint8))


def encoded(image: Image.Image, form: str = "JPEG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"crop_ratio": 0.0}, "crop ratio is 0"),
        ({"crop_ratio": 1.2}, "at most 1"),
        ({"crop_ratio": float("nan")}, "crop ratio"),
        ({"crops": ((96, 0.0),)}, "crop ratio is 0"),
        ({"crops": ((96, 0.6), (96, 0.7))}, "twice"),
        ({"std": (0.2, 0.0, 0.2)}, "deviations above 0"),
        ({"std": (0.2, -0.2, 0.2)}, "deviations above 0"),
        ({"mean": (0.5, float("inf"), 0.5)}, "finite"),
    ],
)
def test_numbers_that_cannot_be_meant_are_refused(options: dict[str, object], why: str) -> None:
    with pytest.raises(PreprocessingError, match=why):
        Preprocessing(**options)  # type: ignore[arg-type]


def test_at_224_it_is_the_usual_resize_to_256_and_centre_crop() -> None:
    image = photo(500, 375)
    usual = v2.Compose(
        [
            v2.Resize(256),
            v2.CenterCrop(224),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    found = Preprocessing()(image, 224)
    assert found.shape == (3, 224, 224)
    assert found.dtype == torch.float32
    # torchvision rounds the longer side and the crop's place to whole pixels; ours does not
    assert float((found - usual(image)).abs().mean()) < 0.01


@given(st.integers(1, 4000), st.integers(1, 4000))
def test_box_is_a_centred_square_inside_the_image(width: int, height: int) -> None:
    left, top, right, bottom = Preprocessing().box(width, height, 96)
    assert right - left == pytest.approx(bottom - top) == pytest.approx(0.875 * min(width, height))
    assert left + right == pytest.approx(width)
    assert top + bottom == pytest.approx(height)
    assert left >= 0 <= top


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (3000, 2), (17, 31)])
def test_any_shape_of_image_becomes_the_square(size: tuple[int, int]) -> None:
    assert Preprocessing()(photo(*size), 96).shape == (3, 96, 96)


@pytest.mark.parametrize("shape", [(5, 3), (4, 5, 3), (2, 4, 5, 3)])
def test_normalise_is_the_same_for_any_layout(shape: tuple[int, ...]) -> None:
    preprocessing = Preprocessing()
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    expected = (pixels / 255 - preprocessing.mean) / preprocessing.std
    assert np.allclose(preprocessing.normalise(pixels), expected, atol=1e-5)
    turned, expected = pixels.swapaxes(0, -2), expected.swapaxes(0, -2)
    assert np.allclose(preprocessing.normalise(turned), expected, atol=1e-5)


def test_pixels_that_were_normalised_come_back() -> None:
    preprocessing = Preprocessing()
    pixels = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
    numbers = preprocessing.normalise(pixels)
    np.testing.assert_array_equal(preprocessing.denormalise(numbers), pixels)
    beyond = preprocessing.denormalise(np.stack([numbers[0] - 9, numbers[0] + 9]))
    assert beyond.tolist() == [[[0, 0, 0]] * 16, [[255, 255, 255]] * 16]


def test_the_crop_may_depend_on_the_resolution() -> None:
    preprocessing = Preprocessing(crops=((224, 0.875), (64, 0.5), (128, 0.75)))
    assert preprocessing.crops == ((64, 0.5), (128, 0.75), (224, 0.875))
    found = [preprocessing.crop(resolution) for resolution in (32, 64, 96, 128, 176, 224, 512)]
    assert found == pytest.approx([0.5, 0.5, 0.625, 0.75, 0.8125, 0.875, 0.875])
    assert preprocessing.box(400, 200, 64) == (150.0, 50.0, 250.0, 150.0)
    assert preprocessing.least_side(64) == 256 > Preprocessing().least_side(64)
    image = photo(400, 200)
    closer = Preprocessing(crop_ratio=0.5)
    assert torch.equal(preprocessing(image, 64), closer(image, 64))
    assert Preprocessing(crop_ratio=0.7).crop(64) == 0.7


def test_reduced_scale_decoding_keeps_enough_pixels_and_the_picture() -> None:
    preprocessing = Preprocessing()
    data = encoded(photo(1600, 1200), quality=95)
    reduced = decode(data, at_least=preprocessing.least_side(96))
    assert preprocessing.least_side(96) <= min(reduced.size) < 1200
    whole = preprocessing(decode(data), 96)
    assert float((preprocessing(reduced, 96) - whole).abs().mean()) < 0.03


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation: int) -> None:
    upright = photo(120, 80)
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # as Image.Transpose
    stored = upright.transpose(undo[orientation]) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(stored, quality=95, exif=exif)
    found = decode(data)
    assert found.size == (120, 80)
    difference = np.asarray(found, int) - np.asarray(upright, int)
    assert np.abs(difference).mean() < 4


@pytest.mark.parametrize(
    ("mode", "form"),
    [
        ("L", "PNG"),
        ("1", "PNG"),
        ("P", "PNG"),
        ("LA", "PNG"),
        ("RGBA", "PNG"),
        ("RGBA", "WEBP"),
        ("P", "GIF"),
        ("CMYK", "JPEG"),
        ("CMYK", "TIFF"),
        ("L", "JPEG"),
        ("RGB", "BMP"),
        ("RGB", "PPM"),
        ("YCbCr", "JPEG"),
    ],
)
def test_every_colour_mode_becomes_rgb(mode: str, form: str) -> None:
    data = encoded(photo().convert(mode), form)
    image = decode(data)
    assert image.mode == "RGB"
    assert image.size == (300, 200)
    assert np.asarray(image).std() > 10


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    values = np.asarray(decode(encoded(Image.fromarray(ramp), "PNG")))
    assert values[0, 0, 0] == 0
    assert values[-1, -1, 0] == 255
    assert abs(int(values[8, 0, 0]) - 128) <= 1


@pytest.mark.parametrize("top", [1.0, 255.0])
def test_floating_point_images(top: float) -> None:
    ramp = np.linspace(0, top, 256, dtype=np.float32).reshape(16, 16)
    values = np.asarray(decode(encoded(Image.fromarray(ramp), "TIFF")))
    assert (values.min(), values.max()) == (0, 255)


def test_alpha_shows_white() -> None:
    clear = Image.new("RGBA", (8, 8), (200, 0, 0, 0))
    assert np.asarray(decode(encoded(clear, "PNG"))).min() == 255


def test_the_first_frame_of_an_animation() -> None:
    frames = [Image.new("RGB", (20, 20), c) for c in ("red", "blue", "green")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert np.asarray(decode(data))[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("data", [b"", b"hello", b"\x00" * 1000, b"RIFF1234WAVE"])
def test_what_is_no_image_says_so(data: bytes) -> None:
    with pytest.raises(NotAnImageError, match="not an image"):
        decode(data)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"<svg xmlns='x'/>", "SVG"),
        (b"%PDF-1.7 ....", "PDF"),
        (b"\x00\x00\x00\x20ftypavif", "AVIF"),
        (b"8BPS\x00\x01", "Photoshop"),
    ],
)
def test_known_formats_that_are_not_decoded_are_named(data: bytes, name: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=name):
        decode(data)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
def test_an_image_that_ends_early_is_corrupt(form: str) -> None:
    noise = Image.effect_noise((200, 200), 90).convert("RGB")
    data = encoded(noise, form)
    with pytest.raises((CorruptImageError, NotAnImageError)):
        decode(data[: len(data) // 2])


def test_too_many_pixels_are_refused_before_decoding() -> None:
    data = encoded(Image.new("1", (20_000, 20_000)), "PNG")
    assert len(data) < 100_000
    with pytest.raises(ImageTooLargeError, match="at most 1000000"):
        decode(data, max_pixels=1_000_000)


def test_files_are_read_too(tmp_path: Path) -> None:
    file = tmp_path / "photo.jpg"
    file.write_bytes(encoded(photo()))
    assert decode(file).size == (300, 200)
    with pytest.raises(NotAnImageError, match="no file"):
        decode(tmp_path / "none.jpg")


def test_an_animation_may_end_anywhere() -> None:
    frames = [photo(16, 12), photo(16, 12).rotate(90), photo(16, 12).rotate(180)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    refused = 0
    for end in range(1, len(data)):
        try:
            decode(data[:end])
        except ImageError:
            refused += 1
    assert refused > 0


def test_damage_that_can_be_lived_with_is_not_talked_about() -> None:
    # A process of its own: the test runner has filters that go before ours.
    program = (
        "import sys; from san_core.preprocessing import decode; "
        "from san_core.errors import ImageError\n"
        "try: decode(sys.stdin.buffer.read())\n"
        "except ImageError: print('refused')"
    )
    cut = encoded(photo(16, 12), "TIFF")[:14]
    done = subprocess.run(
        [sys.executable, "-c", program], input=cut, capture_output=True, check=True
    )
    assert (done.stdout, done.stderr) == (b"refused\n", b"")


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_a_damaged_tiff_is_refused_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    whole = encoded(photo(64, 64), "TIFF", compression="tiff_lzw")
    refused = 0
    for seed in range(20):
        damaged = bytearray(whole)
        for place in np.random.default_rng(seed).integers(8, len(whole), 40):
            damaged[place] ^= 0x55
        try:
            decode(bytes(damaged))
        except ImageError:
            refused += 1
    assert refused > 10
    # libtiff would have written to the file descriptor, past Python's own stderr
    assert capfd.readouterr().err == ""


def test_a_pillow_without_libtiff_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libtiff._imaging, "__file__", _ctypes.__file__)
    assert not libtiff.silence()
