from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import (
    ParameterError,
)
from service.http.multipart import image_bytes


def form(boundary, *parts):
    body = b"".join(
        b'--%s\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (boundary, name, value)
        for name, value in parts
    )
    return body + b"--%s--\r\n" % boundary


def test_the_field_is_found_among_others():
    body = form(b"B", (b"note", b"hi"), (b"image", b"\r\nPIX--B\r\n"), (b"more", b"x"))
    assert image_bytes(body, b"multipart/form-data; boundary=B") == b"\r\nPIX--B\r\n"


def test_the_bytes_decide():
    assert image_bytes(b"\xff\xd8\xff", b"multipart/form-data; boundary=B") == b"\xff\xd8\xff"
    assert image_bytes(b"--B", None) == b"--B"
    assert image_bytes(b"--B", b"image/jpeg") == b"--B"


@pytest.mark.parametrize(
    "body",
    [
        form(b"B", (b"photo", b"x")),
        form(b"B", (b"image", b"x"), (b"image", b"y")),
        b"--B\r\nContent-Disposition\r\n\r\nbroken",
        b"--Bxx",
    ],
)
def test_forms_that_cannot_be_used(body):
    with pytest.raises(ParameterError):
        image_bytes(body, b"multipart/form-data; boundary=B")


@given(st.binary(max_size=200))
def test_any_form_is_read_or_refused(data):
    with suppress(ParameterError):
        assert isinstance(image_bytes(b"--B" + data, b"multipart/form-data; boundary=B"), bytes)
