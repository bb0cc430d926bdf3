"""What decoding will cost, from the header alone."""

import io
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from san_core.errors import (
    CorruptImageError,
    ImageError,
    ImageTooLargeError,
    NotAnImageError,
    UnsupportedFormatError,
)
from service.images.decoder import DecodeLimits
from service.images.formats import FORMATS, READERS
from service.images.header import Header, read_header
from tests.campaign.images import ATTACKS, attack
from tests.service.conftest import picture

ALL = frozenset(FORMATS)
DEFAULT = frozenset(DecodeLimits().formats)


def read(data: bytes, formats: frozenset[str] = ALL) -> Header:
    return read_header(data, formats)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("size", [(1, 1), (640, 480), (33, 1000)])
def test_the_header_agrees_with_pillow(name, size):
    header = read(picture(*size, name))
    assert (header.format, header.width, header.height) == (name, *size)
    assert header.decode_ms > 0
    assert header.memory_bytes >= 3 * size[0] * size[1]
    assert header.plain == (name == "JPEG")
    DecodeLimits().check(header)


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("exif", [b"", b"Exif\0\0II*\0"])
def test_every_kind_of_webp(lossless, exif):
    out = io.BytesIO()
    Image.new("RGB", (301, 77)).save(out, "WEBP", lossless=lossless, exif=exif)
    assert (read(out.getvalue()).width, read(out.getvalue()).height) == (301, 77)


def test_progressive_and_commented_jpegs():
    out = io.BytesIO()
    Image.new("RGB", (70, 50)).save(out, "JPEG", progressive=True, comment=b"x" * 5000)
    header = read(out.getvalue())
    assert (header.width, header.height) == (70, 50)
    assert header.plain


def test_what_libjpeg_turbo_does_not_decode_quickly_is_not_plain():
    out = io.BytesIO()
    Image.new("CMYK", (70, 50)).save(out, "JPEG")
    assert not read(out.getvalue()).plain
    frame = picture().index(b"\xff\xc0")
    for marker in (b"\xff\xc9", b"\xff\xca"):  # arithmetic coding
        assert not read(picture().replace(b"\xff\xc0", marker, 1)).plain
    data = bytearray(picture())
    data[frame + 4] = 12  # bits a sample
    assert not read(bytes(data)).plain


def progressive(size, repeats):
    """A progressive JPEG whose last scan comes again and again."""
    out = io.BytesIO()
    Image.new("L", size).save(out, "JPEG", progressive=True)
    data = out.getvalue()
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + repeats * last + data[-2:]


def three_scans(size):
    """A baseline JPEG with a scan per component: three grey ones in one file."""
    out = io.BytesIO()
    Image.new("L", size).save(out, "JPEG")
    data = out.getvalue()
    frame, scan = data.index(b"\xff\xc0"), data.index(b"\xff\xda")
    components = b"".join(bytes([c, 0x11, 0]) for c in (1, 2, 3))
    head = data[:frame] + b"\xff\xc0\0\x11" + data[frame + 4 : frame + 9] + b"\3" + components
    scans = (b"\xff\xda\0\x08\1%c\0\0\x3f\0" % c + data[scan + 10 : -2] for c in (1, 2, 3))
    return head + data[frame + 13 : scan] + b"".join(scans) + b"\xff\xd9"


def test_scans_are_counted_where_there_can_be_several():
    assert read(picture()).scans == 1
    assert read(picture() + b"\xff\xda" * 50).scans == 1
    several = read(progressive((70, 50), 0)).scans
    assert 3 <= several <= 20
    assert read(progressive((70, 50), 7)).scans == several + 7
    assert read(three_scans((70, 50))).scans == 3


@pytest.mark.parametrize(
    ("size", "repeats", "taken"),
    [
        ((70, 50), 80, True),
        ((4000, 3000), 0, True),
        ((4000, 3000), 100, False),
        ((6000, 6000), 30, False),
    ],
)
def test_a_jpeg_of_too_many_scans_is_refused_before_it_is_decoded(size, repeats, taken):
    header = read(progressive(size, repeats))
    if taken:
        DecodeLimits().check(header)
    else:
        with pytest.raises(ImageTooLargeError, match="scans"):
            DecodeLimits().check(header)


def test_an_ordinary_photograph_of_twelve_megapixels_is_taken():
    DecodeLimits().check(read(picture(4000, 3000)))


def test_only_the_formats_that_were_asked_for():
    for name in READERS:
        if name in DEFAULT:
            assert read(picture(image_format=name), DEFAULT).format == name
        else:
            with pytest.raises(UnsupportedFormatError, match="send one of JPEG, PNG, WEBP"):
                read(picture(image_format=name), DEFAULT)
    with pytest.raises(NotAnImageError):
        read(b"hello", DEFAULT)
    with pytest.raises(UnsupportedFormatError, match="PDF"):
        read(b"%PDF-1.4", DEFAULT)


FOUND_OUT_LATER = {"png of chunks", "png with a text bomb", "gif of frames", "tiff of directories"}
"""What their headers promise is cheap: a helper decodes them, and is killed if it is not."""


@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in FOUND_OUT_LATER])
def test_attacks_are_refused_by_their_headers(name):
    with pytest.raises((ImageTooLargeError, CorruptImageError)):
        DecodeLimits(FORMATS).check(read(attack(name)))


STARTS = (b"", *(picture(image_format=name)[:size] for name in FORMATS for size in (4, 12, 40)))


@given(st.binary(max_size=300))
def test_any_bytes_give_a_header_or_a_sentence(data):
    for start in STARTS:
        with suppress(ImageError):
            header = read(start + data)
            assert header.width > 0
            assert header.height > 0
