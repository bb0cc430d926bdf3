"""What is fuzzed: parsers of a stranger's bytes. Each takes bytes and may only raise our errors."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from san_core.bundle import read
from san_core.errors import SanError
from san_core.preprocessing import Preprocessing
from service.http.open_inference.request import parse_request
from service.http.upload.multipart import form_images
from service.images import jpeg
from service.images.formats import FORMATS
from service.images.header import read_header

_ALL = frozenset(FORMATS)
_loop = asyncio.new_event_loop()
_bundle = Path(tempfile.gettempdir()) / "san-serve-fuzzed.safetensors"


def header(data: bytes) -> None:
    """Any image's header."""
    with suppress(SanError):
        found = read_header(data, _ALL)
        assert found.width > 0
        assert found.height > 0
        assert found.decode_ms >= 0


def segments(data: bytes) -> None:
    """A JPEG's segments, its orientation, and its decoder if it is cheap."""
    data = b"\xff\xd8\xff" + data
    with suppress(SanError):
        found = read_header(data, _ALL)
        if found.plain and found.pixels < 100_000:
            jpeg.to_pixels(data, Preprocessing(), 32)


def form(data: bytes) -> None:
    """A form and its Content-Type."""
    kind, _, body = data.partition(b"\n")
    with suppress(SanError):
        _loop.run_until_complete(form_images(b"--b\r\n" + body, b"multipart/form-data; boundary=b"))
        _loop.run_until_complete(form_images(body, b"multipart/form-data;" + kind))


def tensors(data: bytes) -> None:
    """An inference request."""
    length, _, body = data.partition(b"\n")
    with suppress(SanError):
        parse_request(body, length.decode("latin-1") or None, None)
    text, _, raw = data.partition(b"\n\n")
    with suppress(SanError):
        parse_request(text + raw, str(len(text)), None)


def bundle(data: bytes) -> None:
    """A bundle: its header, manifest and tensors."""
    _bundle.write_bytes(data)
    with suppress(SanError):
        read(_bundle)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "header": header,
    "segments": segments,
    "form": form,
    "tensors": tensors,
    "bundle": bundle,
}
