"""The short way from a JPEG gives what the reference gives, or leaves the file to it."""

import functools
import io
import os
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

from san_core.errors import CorruptImageError
from san_core.preprocessing import Preprocessing, decode
from service.images import jpeg
from service.images.header import read_jpeg


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


@pytest.fixture(params=["cykooz.resizer", "Pillow"])
def resizer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jpeg, "_IS_FAST", request.param != "Pillow")


@pytest.mark.usefixtures("resizer")
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(500, 375), (375, 500), (333, 257), (64, 64), (1600, 1200)])
@pytest.mark.parametrize("resolution", [224, 96, 57])
def test_close_to_the_reference(size: tuple[int, int], resolution: int, interpolation: str) -> None:
    preprocessing = Preprocessing(interpolation=interpolation)
    assert difference(encoded(photograph(*size)), preprocessing, resolution) < 3.0


@pytest.mark.usefixtures("resizer")
@pytest.mark.parametrize("size", [(1, 1), (1, 500), (3000, 2), (17, 31), (333, 257)])
@pytest.mark.parametrize("crop", [0.6, 0.7, 0.875, 1.0])
def test_any_shape_of_image_becomes_the_square(size: tuple[int, int], crop: float) -> None:
    preprocessing = Preprocessing(crop_ratio=crop, interpolation="bicubic")
    assert difference(encoded(photograph(*size), subsampling=0), preprocessing, 96) < 3.0


@pytest.mark.usefixtures("resizer")
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
    assert jpeg.to_pixels(data, Preprocessing(), 160).flags.c_contiguous


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


def test_a_jpeg_that_is_cut_is_refused() -> None:
    good = encoded(photograph(400, 300))
    for data in (good[: len(good) // 2], good[:40], good[:2] + b"\xff" + bytes(200), b""):
        with pytest.raises(CorruptImageError):
            jpeg.to_pixels(data, Preprocessing(), 96)


def test_damage_that_a_decoder_can_live_with_is_lived_with() -> None:
    good = bytearray(encoded(photograph(400, 300)))
    good[len(good) // 2 : len(good) // 2 + 4] = b"\xff\xd3\xff\xd4"
    assert jpeg.to_pixels(bytes(good), Preprocessing(), 96).shape == (96, 96, 3)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("tags", [0, 3, 300])
def test_only_the_first_exif_segment_is_read(order: str, tags: int) -> None:
    pack = partial(struct.pack, order + "HHIHH")
    entries = [pack(0x100 + i % 8, 3, 1, 0, 0) for i in range(tags)] + [pack(0x0112, 3, 1, 6, 0)]
    tiff = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    tiff += struct.pack(order + "H", len(entries)) + b"".join(entries) + bytes(4)
    segment = b"Exif\0\0" + tiff
    data = encoded(photograph(40, 30))
    head = b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment
    turned = data[:2] + head + data[2:]
    # A directory of more tags than any camera writes is not read to its end.
    assert read_jpeg(turned).orientation == (6 if tags < 256 else 1)
    before = b"\xff\xe1\0\x0aExif\0\0II"
    assert read_jpeg(turned[:2] + before + turned[2:]).orientation == 1


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
