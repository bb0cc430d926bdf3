"""The short way from a JPEG gives what the reference gives, or leaves the file to it."""

import functools
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

from san_core.preprocessing import Preprocessing, decode
from service.images import jpeg


@functools.cache
def photograph(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """Something smooth with detail that tells up from down and left from right."""
    random = np.random.default_rng(0)
    noise = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
    blurred = Image.fromarray(noise).filter(ImageFilter.GaussianBlur(4))
    y, x = np.mgrid[0:height, 0:width]
    waves = 127 * (1 + np.sin(12 * (x / width + 2 * y / height)))
    ramp = np.stack([x * 255 / width, y * 255 / height, waves], -1)
    mixed = 0.5 * np.asarray(blurred, np.float32) + 0.5 * ramp
    return Image.fromarray(mixed.clip(0, 255).astype(np.uint8)).convert(mode)


def encoded(image: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, **{"format": "JPEG", "quality": 92} | options)
    return file.getvalue()


def difference(data: bytes, preprocessing: Preprocessing, resolution: int) -> float:
    """Mean absolute difference from the reference, in levels of 0 to 255."""
    found = jpeg.to_pixels(data, preprocessing, resolution)
    assert found is not None
    assert found.shape == (resolution, resolution, 3)
    assert found.dtype == np.uint8
    expected = preprocessing.to_pixels(decode(data), resolution)
    return float(np.abs(found.astype(int) - expected.astype(int)).mean())


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(500, 375), (375, 500), (333, 257), (64, 64), (1600, 1200)])
@pytest.mark.parametrize("resolution", [224, 96, 57])
def test_close_to_the_reference(size: tuple[int, int], resolution: int, interpolation: str) -> None:
    preprocessing = Preprocessing(interpolation=interpolation)
    assert difference(encoded(photograph(*size)), preprocessing, resolution) < 3.0


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_the_same_as_pillow_where_the_crop_is_whole(interpolation: str) -> None:
    preprocessing = Preprocessing(interpolation=interpolation)  # 0.875 * 256 = 224, all even
    assert difference(encoded(photograph(256, 256)), preprocessing, 160) < 0.2


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(photograph(256, 320), exif=exif)
    assert difference(data, Preprocessing(), 160) < 0.5


def test_large_files_are_decoded_at_reduced_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    whole = jpeg.resize

    def spy(pixels: np.ndarray, *rest: object) -> np.ndarray:
        sizes.append(pixels.shape[:2])
        return whole(pixels, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(jpeg, "resize", spy)
    jpeg.to_pixels(encoded(photograph(1600, 1200)), Preprocessing(), 96)
    (height, width) = sizes[0]
    # An eighth would leave 150 pixels, more than the crop needs but less than twice as many.
    assert height == 300
    assert width * 3 == height * 4


@pytest.mark.parametrize("options", [{"progressive": True}, {"subsampling": 0}, {"quality": 30}])
def test_every_kind_of_coding(options: dict[str, object]) -> None:
    assert difference(encoded(photograph(400, 300), **options), Preprocessing(), 128) < 3.0


def test_grey_becomes_colour() -> None:
    assert difference(encoded(photograph(400, 300, "L")), Preprocessing(), 128) < 3.0


def test_what_is_not_a_plain_jpeg_is_left_to_the_reference() -> None:
    good = encoded(photograph(400, 300))
    others = {
        "png": encoded(photograph(400, 300), format="PNG"),
        "cmyk": encoded(photograph(400, 300, "CMYK")),
        "cut": good[: len(good) // 2],
        "header only": good[:40],
        "junk": good[:2] + b"\xff" + bytes(range(200)),
        "empty": b"",
    }
    for name, data in others.items():
        assert jpeg.to_pixels(data, Preprocessing(), 96) is None, name


def test_a_file_with_too_many_pixels_is_left_to_the_reference() -> None:
    data = encoded(photograph(400, 300))
    assert jpeg.to_pixels(data, Preprocessing(), 96, max_pixels=400 * 300 - 1) is None
    assert jpeg.to_pixels(data, Preprocessing(), 96, max_pixels=400 * 300) is not None


@pytest.mark.parametrize("capability", ["default", "avx2"])
def test_decoding_starts_no_helper_threads(capability: str, tmp_path: Path) -> None:
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(encoded(photograph(500, 375)))
    code = """if True:
        import os, sys
        from pathlib import Path
        from san_core.preprocessing import Preprocessing
        from service.images.decoder import to_input
        count = lambda: len(os.listdir("/proc/self/task"))
        before = count()
        to_input(Path(sys.argv[1]).read_bytes(), Preprocessing(), 224)
        print(count() - before)
    """
    env = os.environ | {"ATEN_CPU_CAPABILITY": capability, "OMP_NUM_THREADS": "2"}
    run = subprocess.run(
        [sys.executable, "-c", code, photo], env=env, capture_output=True, text=True
    )
    assert run.stdout == "0\n", run.stderr
