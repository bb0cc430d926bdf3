"""The files in a form."""

from __future__ import annotations

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.errors import ParameterError

FIELD = "image"


def boundary_of(body: bytes, content_type: bytes | None) -> bytes | None:
    """What separates the parts, if the body is a form.

    `curl --data-binary` sends a form's Content-Type with a bare image; that must work. So only a
    body that begins with the announced boundary is a form.
    """
    if not content_type or b"multipart/form-data" not in content_type.lower():
        return None
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary or not body.lstrip(b"\r\n").startswith(b"--" + boundary):
        return None
    return boundary


class _Parts:
    """Gathers the parts of a form as the parser comes upon them."""

    def __init__(self) -> None:
        self.files: list[tuple[str, list[bytes]]] = []
        """Field and pieces of every part that is a file or is called `image`."""
        self.names: list[str] = []
        self._name = bytearray()
        self._value = bytearray()
        self._pieces: list[bytes] | None = None

    def on_part_begin(self) -> None:
        self._pieces = None

    def on_header_begin(self) -> None:
        self._name.clear()
        self._value.clear()

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._name.extend(data[start:end])

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value.extend(data[start:end])

    def on_header_end(self) -> None:
        if bytes(self._name).lower() != b"content-disposition":
            return
        _, options = parse_options_header(bytes(self._value))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        self.names.append(name)
        if name == FIELD or b"filename" in options:
            self._pieces = []
            self.files.append((name, self._pieces))

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._pieces is not None:
            self._pieces.append(data[start:end])


def files(body: bytes, boundary: bytes) -> list[bytes]:
    """The images in a form: every field `image`, or the one file of any other name."""
    parts = _Parts()
    parser = MultipartParser(
        boundary,
        {
            "on_part_begin": parts.on_part_begin,
            "on_header_begin": parts.on_header_begin,
            "on_header_field": parts.on_header_field,
            "on_header_value": parts.on_header_value,
            "on_header_end": parts.on_header_end,
            "on_part_data": parts.on_part_data,
        },
    )
    try:
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise ParameterError(f"The form cannot be read: {error}.", FIELD) from error
    found = [pieces for name, pieces in parts.files if name == FIELD]
    if not found and len(parts.files) == 1:
        found = [parts.files[0][1]]
    if not found:
        there = ", ".join(repr(name[:40]) for name in parts.names[:8]) or "none"
        raise ParameterError(
            f"Send each image in a form field 'image', as a file; the fields here are: {there}.",
            FIELD,
        )
    return [b"".join(pieces) for pieces in found]
