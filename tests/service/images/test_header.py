import asyncio
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from san_core.errors import ImageTooLargeError
from san_core.preprocessing import inspect
from service.images.decoder import Decoder
from service.images.header import quick_header
from tests.service.conftest import picture
from tests.service.fakes import FakeClock, InlineWorkers


@pytest.mark.parametrize("name", ["JPEG", "PNG"])
@pytest.mark.parametrize("size", [(1, 1), (640, 480), (33, 1000)])
def test_the_quick_header_agrees_with_pillow(name, size):
    data = picture(*size, name)
    header = quick_header(data)
    assert (header.format, header.width, header.height) == (name, *size)


def test_progressive_and_commented_jpegs(tmp_path):
    out = io.BytesIO()
    Image.new("RGB", (70, 50)).save(out, "JPEG", progressive=True, comment=b"x" * 5000)
    header = quick_header(out.getvalue())
    assert (header.width, header.height) == (70, 50)


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
    assert quick_header(picture()).scans == 1
    assert quick_header(picture() + b"\xff\xda" * 50).scans == 1
    several = quick_header(progressive((70, 50), 0)).scans
    assert 3 <= several <= 20
    assert quick_header(progressive((70, 50), 7)).scans == several + 7
    assert quick_header(three_scans((70, 50))).scans == 3
    assert inspect(three_scans((70, 50))).scans == 3


@pytest.mark.parametrize(
    ("size", "repeats", "taken"),
    [
        ((70, 50), 80, True),
        ((70, 50), 100, False),
        ((6000, 6000), 0, True),
        ((6000, 6000), 30, False),
    ],
)
def test_a_jpeg_of_too_many_scans_is_refused_before_it_is_decoded(size, repeats, taken):
    decoder = Decoder(InlineWorkers(), FakeClock(), max_pixels=50_000_000, max_frames=9)
    data = progressive(size, repeats)
    for padding in (b"", bytes(1_000_000)):  # the second is counted on a decoder thread
        looked = decoder.header(data + padding, 0.0)
        if taken:
            assert asyncio.run(looked).scans >= repeats
        else:
            with pytest.raises(ImageTooLargeError, match="scans"):
                asyncio.run(looked)


@given(st.binary(max_size=300))
def test_any_bytes_give_a_header_or_none(data):
    for start in (b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"):
        header = quick_header(start + data)
        assert header is None or (header.width > 0 and header.height > 0)
