"""Images in a body, in every shape people send them."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from san_core.errors import SanError
from service.http.upload import inputs


def images_in(*args):
    return asyncio.run(inputs.images_in(*args))


FORM = b"multipart/form-data; boundary=B"
URLENCODED = b"application/x-www-form-urlencoded"
JPEG = b"\xff\xd8\xff\xe0 picture \r\n"
TEXT = base64.b64encode(JPEG).decode()


def form(*parts: tuple[str, bytes | None, bytes]) -> bytes:
    out = b""
    for name, filename, data in parts:
        shown = b"" if filename is None else b'; filename="%s"' % filename
        out += b'--B\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % (
            name.encode(), shown, data,
        )  # fmt: skip
    return out + b"--B--\r\n"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (JPEG, None),
        (JPEG, b"image/jpeg"),
        (JPEG, URLENCODED),  # curl --data-binary
        (JPEG, FORM),
        (form(("image", b"a.jpg", JPEG)), FORM),
        (form(("image", None, JPEG)), FORM),
        (form(("file", b"a.jpg", JPEG)), FORM),
        (form(("note", None, b"hello"), ("photo", b"a.jpg", JPEG)), FORM),
        (json.dumps({"image": TEXT}).encode(), b"application/json"),
        (json.dumps({"image": f"data:image/jpeg;base64,{TEXT}"}).encode(), None),
        (json.dumps(TEXT).encode(), None),
        (f"data:image/jpeg;base64,{TEXT}".encode(), b"text/plain"),
    ],
)
def test_one_image_however_it_is_sent(body, content_type):
    assert images_in(body, content_type, 8) == ([JPEG], False)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (form(("image", b"a.jpg", JPEG), ("image", b"b.jpg", b"second")), FORM),
        (json.dumps({"images": [TEXT, base64.b64encode(b"second").decode()]}).encode(), None),
        (json.dumps([TEXT, {"b64": base64.b64encode(b"second").decode()}]).encode(), None),
    ],
)
def test_several_images(body, content_type):
    assert images_in(body, content_type, 2) == ([JPEG, b"second"], True)
    with pytest.raises(SanError, match="At most 1 images fit into one request"):
        images_in(body, content_type, 1)


def test_a_list_of_one_is_answered_with_a_list():
    assert images_in(json.dumps({"images": [TEXT]}).encode(), None, 8) == ([JPEG], True)


@pytest.mark.parametrize(
    ("body", "content_type", "sentence"),
    [
        (b"", None, "The body is empty"),
        (form(("image", b"a.jpg", b"")), FORM, "The body is empty"),
        (form(("image", b"a", JPEG), ("image", b"b", b"")), FORM, "Image 1 of 2 is empty"),
        (form(("a", b"a", JPEG), ("b", b"b", JPEG)), FORM, "the fields here are: 'a', 'b'"),
        (form(("note", None, b"hello")), FORM, "form field 'image', as a file"),
        (b"@photo.jpg", URLENCODED, "--data-binary @photo.jpg"),
        (b"photo.jpg", URLENCODED, "--data-binary @photo.jpg"),
        (b"/home/me/my photo.JPEG", None, "The body is a file's name"),
        (form(("image", None, b"photo.jpg")), FORM, "curl -F image=@photo.jpg"),
        (form(("image", b"a", JPEG), ("image", None, b"b.png")), FORM, "Image 1 of 2 is a file's"),
        (b"https://example.org/a.jpg", None, "The service fetches nothing"),
        (JPEG.replace(b"\r\n", b"") * 400, URLENCODED, "curl's -d drops them"),
        (b'{"url": "https://example.org/a.jpg"}', None, "The service fetches no URL"),
        (b'{"image": "https://example.org/a.jpg"}', None, "is a URL"),
        (b'{"images": []}', None, "images is empty"),
        (b'{"picture": "x"}', None, "The members here are: 'picture'"),
        (b'{"image": 7}', None, "image must be a string. Send JSON as"),
        (b'{"images": {"a": 1}}', None, "images must be a list. Send JSON as"),
        (b'{"image": "abc"}', None, "image is not base64"),
        (b'{"image"', None, "neither an image nor JSON"),
        (b"[[]]", None, "images[0] is no string"),
    ],
)
def test_what_cannot_be_read_is_told_the_cure(body, content_type, sentence):
    with pytest.raises(SanError) as caught:
        images_in(body, content_type, 8)
    assert sentence in str(caught.value)


@given(st.binary(), st.sampled_from([None, FORM, URLENCODED, b"application/json"]))
def test_no_body_breaks_it(body, content_type):
    try:
        images, _ = images_in(body, content_type, 8)
    except SanError:
        return
    assert all(isinstance(image, bytes) and image for image in images)
