"""Finding the image in a body: the bytes decide, not the Content-Type.

`curl --data-binary` sends a form's Content-Type with a bare image; that must work. Only a body that
begins with the announced boundary is taken apart.
"""

from __future__ import annotations

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.errors import ParameterError

FIELD = "image"


def image_bytes(body: bytes, content_type: bytes | None) -> bytes:
    """The image itself: the body, or the part of a form that is called `image`."""
    if not content_type or b"multipart/form-data" not in content_type.lower():
        return body
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary or not body.lstrip(b"\r\n").startswith(b"--" + boundary):
        return body
    return _field(body, boundary)


def _field(body: bytes, boundary: bytes) -> bytes:
    found: list[bytes] = []
    names: list[str] = []
    header_name = bytearray()
    header_value = bytearray()
    wanted = False

    def on_part_begin() -> None:
        nonlocal wanted
        wanted = False

    def on_header_begin() -> None:
        header_name.clear()
        header_value.clear()

    def on_header_field(data: bytes, start: int, end: int) -> None:
        header_name.extend(data[start:end])

    def on_header_value(data: bytes, start: int, end: int) -> None:
        header_value.extend(data[start:end])

    def on_header_end() -> None:
        nonlocal wanted
        if bytes(header_name).lower() == b"content-disposition":
            name = (
                parse_options_header(bytes(header_value))[1]
                .get(b"name", b"")
                .decode("utf-8", "replace")
            )
            names.append(name)
            wanted = name == FIELD

    def on_part_data(data: bytes, start: int, end: int) -> None:
        if wanted:
            found.append(data[start:end])

    parser = MultipartParser(
        boundary,
        {
            "on_part_begin": on_part_begin,
            "on_header_begin": on_header_begin,
            "on_header_field": on_header_field,
            "on_header_value": on_header_value,
            "on_header_end": on_header_end,
            "on_part_data": on_part_data,
        },
    )
    try:
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise ParameterError(f"The form cannot be read: {error}.", FIELD) from error
    if names.count(FIELD) != 1:
        there = ", ".join(repr(n[:40]) for n in names[:8]) or "none"
        raise ParameterError(f"The form must have one field 'image'; it has: {there}.", FIELD)
    return b"".join(found)
