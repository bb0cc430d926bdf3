"""The images in a form: the bytes decide whether it is one, not the Content-Type.

`curl --data-binary` sends a form's Content-Type with a bare image; that must work. Only a body that
begins with the announced boundary is taken apart. What that costs is bounded: few parts, few and
short headers (python-multipart's own limits), and no more boundaries than parts, for each stops the
parser's search. The rest is a search through the bytes, which lets others have the event loop
every `_AT_ONCE` bytes: a thread would be no help, for the search holds the interpreter.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.errors import ParameterError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

FIELD = "image"
MAX_PARTS = 68
_AT_ONCE = 65_536
_LONGEST_CONTENT_TYPE = 512
"""Reading one takes time that grows with the square of its semicolons."""


async def form_images(body: bytes, content_type: bytes | None) -> list[bytes] | None:
    """Every part called `image`, or the one file of any other name; None if it is no form."""
    if not content_type or b"multipart/form-data" not in content_type.lower():
        return None
    if len(content_type) > _LONGEST_CONTENT_TYPE:
        raise ParameterError(
            f"The Content-Type has {len(content_type)} bytes; at most {_LONGEST_CONTENT_TYPE} are "
            "taken.",
            "Content-Type",
        )
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary or not body[: len(boundary) + 8].lstrip(b"\r\n").startswith(b"--" + boundary):
        return None
    form, boundaries = _Form(), 0
    try:
        parser = MultipartParser(boundary, form.callbacks())
        for start in range(0, len(body), _AT_ONCE):
            if start:
                await asyncio.sleep(0)
            piece = body[start : start + _AT_ONCE]
            boundaries += piece.count(b"--" + boundary)
            if boundaries > MAX_PARTS + 1:
                raise ParameterError(f"The form may have at most {MAX_PARTS} parts.", FIELD)
            parser.write(piece)
    except _EndError:
        pass
    except FormParserError as error:
        raise ParameterError(f"The form cannot be read: {error}.", FIELD) from error
    else:
        raise ParameterError("The form has no end: its last boundary is missing.", FIELD)
    found = [pieces for name, pieces in form.files if name == FIELD]
    if not found and len(form.files) == 1:
        found = [form.files[0][1]]
    if not found:
        there = ", ".join(repr(name[:40]) for name in form.names[:8]) or "none"
        raise ParameterError(
            f"Send each image in a form field 'image', as a file; the fields here are: {there}.",
            FIELD,
        )
    return [b"".join(pieces) for pieces in found]


class _EndError(Exception):
    """The last boundary was read; what follows it is ignored."""


class _Form:
    """What the parser finds, as it goes."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.files: list[tuple[str, list[bytes]]] = []
        """Name and pieces of every part that is a file, or is called `image`."""
        self._name = bytearray()
        self._value = bytearray()
        self._disposed = False
        self._pieces: list[bytes] | None = None

    def callbacks(self) -> MultipartCallbacks:
        """What the parser calls."""
        return {
            "on_part_begin": self.on_part_begin,
            "on_header_begin": self.on_header_begin,
            "on_header_field": self.on_header_field,
            "on_header_value": self.on_header_value,
            "on_header_end": self.on_header_end,
            "on_part_data": self.on_part_data,
            "on_end": self.on_end,
        }

    def on_part_begin(self) -> None:
        """A part begins; it is ignored until its headers name a field."""
        self._disposed, self._pieces = False, None

    def on_header_begin(self) -> None:
        """A header begins."""
        self._name.clear()
        self._value.clear()

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        """A piece of its name."""
        self._name.extend(data[start:end])

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        """A piece of its value."""
        self._value.extend(data[start:end])

    def on_header_end(self) -> None:
        """See whether the part is an image."""
        if self._name.lower() != b"content-disposition":
            return
        if self._disposed:
            raise ParameterError("A part of the form has two Content-Dispositions.", FIELD)
        self._disposed = True
        _, options = parse_options_header(bytes(self._value))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        self.names.append(name)
        if name == FIELD or b"filename" in options:
            self._pieces = []
            self.files.append((name, self._pieces))

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        """A piece of the part."""
        if self._pieces is not None:
            self._pieces.append(data[start:end])

    def on_end(self) -> None:
        """Read no further."""
        raise _EndError
