"""The images in a body: an image as it is, a form, or JSON with base64. The bytes decide.

Whatever else people send by mistake is answered with the cure.
"""

from __future__ import annotations

import asyncio
import binascii
import re
from typing import Any

import orjson

from san_core.errors import NotAnImageError
from service.errors import ParameterError
from service.http.upload.multipart import FIELD, form_images

_AT_ONCE = 65_536
_DATA_URL = re.compile(r"data:[\w.+-]*/?[\w.+-]*(;[\w=.+-]+)*;base64,", re.ASCII)
_URL = re.compile(r"(https?|ftp|file|s3|gs)://", re.IGNORECASE)
_NAME = re.compile(rb"@?[^\r\n\0]{1,250}\.(jpe?g|png|webp|gif|bmp|tiff?|ppm|avif|hei[cf])", re.I)
_JSON_HELP = (
    'Send JSON as {"image": "BASE64"} or {"images": ["BASE64", …]}; a data: URL may stand for '
    "the base64."
)


async def images_in(body: bytes, content_type: bytes | None, most: int) -> tuple[list[bytes], bool]:
    """The images, and whether the client asked for a list of answers."""
    form = await form_images(body, content_type)
    if form is not None:
        images, many = form, len(form) > 1
    elif body[:1] in (b"{", b"[", b'"') or body[:5] == b"data:":
        # base64 of an image takes as long as the image is large.
        large = len(body) > _AT_ONCE
        images, many = await asyncio.to_thread(_from_json, body) if large else _from_json(body)
    else:
        _check_plain(body, content_type)
        images, many = [body], False
    if len(images) > most:
        raise ParameterError(
            f"At most {most} images fit into one request; this one has {len(images)}.", FIELD
        )
    for n, image in enumerate(images):
        which = f"Image {n} of {len(images)}" if many else "The body"
        if not image:
            raise NotAnImageError(f"{which} is empty; send the image's bytes.")
        if _NAME.fullmatch(image):
            raise NotAnImageError(
                f"{which} is a file's name, not the file: put an @ directly before the name, as in "
                "curl --data-binary @photo.jpg or curl -F image=@photo.jpg."
            )
    return images, many


def _check_plain(body: bytes, content_type: bytes | None) -> None:
    """Recognise a URL, and what curl's -d leaves of a picture."""
    if _URL.match(body[:16].decode("latin-1")):
        raise NotAnImageError(
            "The body is a URL. The service fetches nothing; send the image's bytes."
        )
    damaged = body[:3] == b"\xff\xd8\xff" or body[:4] == b"\x89PNG"
    form = content_type is not None and b"urlencoded" in content_type.lower()
    if form and damaged and b"\n" not in body and b"\r" not in body and len(body) > 4096:
        raise NotAnImageError(
            "The image has lost its line-feed bytes, as curl's -d drops them: use "
            "curl --data-binary @photo.jpg."
        )


def _from_json(body: bytes) -> tuple[list[bytes], bool]:
    if body[:5] == b"data:":
        return [_decode(body.decode("latin-1"), FIELD)], False
    try:
        given: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise NotAnImageError(f"The body is neither an image nor JSON: {error}.") from None
    where = "images"
    if isinstance(given, dict):
        known = given.keys() & {"image", "images"}
        if len(given) != 1 or not known:
            if given.keys() & {"url", "image_url", "uri"}:
                raise ParameterError("The service fetches no URL. " + _JSON_HELP, "url")
            names = ", ".join(repr(str(name)[:40]) for name in list(given)[:8]) or "none"
            raise ParameterError(f"{_JSON_HELP} The members here are: {names}.", FIELD)
        (where,) = known
        given = given[where]
    if isinstance(given, str):
        return [_decode(given, FIELD)], False
    if not isinstance(given, list):
        wanted = "a string" if where == "image" else "a list"
        raise ParameterError(f"{where} must be {wanted}. {_JSON_HELP}", where)
    if not given:
        raise ParameterError("images is empty; send at least one image.", "images")
    return [_decode(x, f"images[{n}]") for n, x in enumerate(given)], True


def _decode(text: Any, where: str) -> bytes:
    if isinstance(text, dict):
        text = text.get("image", text.get("b64"))
    if not isinstance(text, str):
        raise ParameterError(f"{where} is no string. {_JSON_HELP}", where)
    if _URL.match(text):
        raise ParameterError(f"{where} is a URL; the service fetches none. {_JSON_HELP}", where)
    found = _DATA_URL.match(text)
    try:
        return binascii.a2b_base64(text[found.end() :] if found else text, strict_mode=False)
    except (binascii.Error, ValueError):
        raise ParameterError(f"{where} is not base64. {_JSON_HELP}", where) from None
