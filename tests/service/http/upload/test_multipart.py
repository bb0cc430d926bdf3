"""A form is taken apart at a bounded cost; `test_classify` sends them over HTTP."""

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import ParameterError
from service.http.upload import multipart
from service.http.upload.multipart import MAX_PARTS

TYPE = b"multipart/form-data; boundary=b"


def image_bytes(body: bytes, content_type: bytes | None) -> bytes:
    found = asyncio.run(multipart.form_images(body, content_type))
    return body if found is None else found[0]


def part(name: str, content: bytes, *more: bytes) -> bytes:
    disposition = f'Content-Disposition: form-data; name="{name}"; filename="a.jpg"\r\n'
    return b"--b\r\n" + disposition.encode() + b"".join(more) + b"\r\n" + content + b"\r\n"


def test_the_image_is_found():
    body = part("other", b"1") + part("image", b"\r\n--data--", b"Content-Type: a/b\r\n") + b"--b--"
    assert image_bytes(body, TYPE) == b"\r\n--data--"
    assert image_bytes(b"\r\n" + body + b"\r\nepilogue" * 1000, TYPE) == b"\r\n--data--"


@pytest.mark.parametrize("size", [65_000 + i for i in range(0, 1000, 37)])
def test_a_boundary_may_lie_across_what_is_read_at_once(size):
    body = part("image", b"x" * size) + part("other", b"") + b"--b--\r\n"
    assert image_bytes(body, TYPE) == b"x" * size


def test_the_event_loop_goes_on_while_a_form_is_read():
    body, turns = part("image", b"x" * 2_000_000) + b"--b--", 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def main() -> None:
        running = asyncio.create_task(others())
        await multipart.form_images(body, TYPE)
        running.cancel()

    asyncio.run(main())
    assert turns >= len(body) // multipart._AT_ONCE


@pytest.mark.parametrize("content_type", [None, b"", b"image/png", TYPE, b"multipart/form-data"])
def test_a_bare_image_is_the_image(content_type):
    assert image_bytes(b"\xff\xd8\xff", content_type) == b"\xff\xd8\xff"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (part("image", b"1"), "no end"),
        (part("picture", b"1") + part("other", b"2") + b"--b--", "'picture', 'other'"),
        (part("image", b"1", b'Content-Disposition: form-data; name="x"\r\n') + b"--b--", "two"),
        (b"--b\r\nno colon\r\n\r\n1\r\n--b--", "cannot be read"),
        (part("x", b"1") * (MAX_PARTS + 2) + b"--b--", f"at most {MAX_PARTS} parts"),
        (
            b"--b\r\n" + b"a:\r\n" * 8 + b"\r\n" + b"\r\n--bX" * 1_000_000,
            f"at most {MAX_PARTS} parts",
        ),
        (b"--b\r\n" + b"a:\r\n" * 1_000_000 + b"\r\n1\r\n--b--", "header count"),
        (b"--b\r\na: " + b"x" * 1_000_000 + b"\r\n\r\n1\r\n--b--", "header size"),
    ],
    ids=["endless", "none", "names", "colon", "parts", "boundaries", "headers", "long"],
)
def test_what_cannot_be_used_is_said(body, sentence):
    with pytest.raises(ParameterError, match=sentence):
        image_bytes(body, TYPE)


def test_a_boundary_longer_than_any_is_no_failure_of_ours():
    boundary = b"b" * 300
    with pytest.raises(ParameterError, match="exceeds maximum"):
        image_bytes(b"--" + boundary + b"\r\n", b"multipart/form-data; boundary=" + boundary)


def test_a_content_type_of_semicolons_is_not_read():
    with pytest.raises(ParameterError, match="at most 512"):
        image_bytes(b"", b"multipart/form-data" + b";" * 60_000)


@given(st.binary(max_size=200))
def test_any_form_is_read_or_refused(data):
    with suppress(ParameterError):
        assert isinstance(image_bytes(b"--b" + data, TYPE), bytes)
