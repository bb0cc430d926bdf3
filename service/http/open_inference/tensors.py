"""Tensors as the protocol carries them: as JSON, or as raw little-endian bytes after the JSON.

A BYTES tensor is a sequence of elements, each with a 4-byte length before it.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import TensorError

_LENGTH = struct.Struct("<I")
_MOST_DIMENSIONS = 8


def split_body(body: bytes, header_length: str | None) -> tuple[bytes, memoryview]:
    """The JSON and the raw tensors behind it; without the length everything is JSON."""
    if header_length is None:
        return body, memoryview(b"")
    text = header_length.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise TensorError("Inference-Header-Content-Length must be the number of JSON bytes.")
    size = int(text)
    if size > len(body):
        raise TensorError(
            f"Inference-Header-Content-Length says {size} bytes of JSON; the body has {len(body)}."
        )
    return body[:size], memoryview(body)[size:]


def read_shape(shape: Any, name: str) -> tuple[int, ...]:
    """A shape as JSON gives it, checked."""
    if not isinstance(shape, list) or not 1 <= len(shape) <= _MOST_DIMENSIONS:
        raise TensorError(f"Input {name!r} needs a shape: a list of dimensions.")
    for side in shape:
        if isinstance(side, bool) or not isinstance(side, int) or side < 1:
            raise TensorError(f"Input {name!r}: a dimension must be a whole number of at least 1.")
    return tuple(shape)


def bytes_from_binary(raw: memoryview, count: int, name: str) -> list[bytes]:
    """The elements of a raw BYTES tensor."""
    found: list[bytes] = []
    at = 0
    while at < len(raw):
        if len(raw) - at < _LENGTH.size:
            raise TensorError(f"Input {name!r} ends inside an element's length.")
        (size,) = _LENGTH.unpack_from(raw, at)
        at += _LENGTH.size
        if size > len(raw) - at:
            raise TensorError(f"Input {name!r}: an element claims {size} bytes; fewer follow.")
        found.append(bytes(raw[at : at + size]))
        at += size
        if len(found) > count:
            break
    _check_count(len(found), count, name)
    return found


def bytes_from_json(data: Any, count: int, name: str) -> list[bytes]:
    """The elements of a BYTES tensor in JSON, where binary data must be base64."""
    flat = list(_flattened(data, name))
    _check_count(len(flat), count, name)
    found = []
    for element in flat:
        if not isinstance(element, str):
            raise TensorError(f"Input {name!r}: an element of BYTES in JSON is a string.")
        try:
            found.append(base64.b64decode(element, validate=True))
        except (binascii.Error, ValueError):
            raise TensorError(
                f"Input {name!r}: in JSON an image must be base64; or send it as binary data."
            ) from None
    return found


def floats_from_binary(raw: memoryview, shape: tuple[int, ...], name: str) -> NDArray[np.float32]:
    """A raw FP32 tensor; a view of the body."""
    expected = 4 * math.prod(shape)
    if len(raw) != expected:
        raise TensorError(
            f"Input {name!r} of shape {list(shape)} takes {expected} bytes, not {len(raw)}."
        )
    return np.frombuffer(raw, dtype="<f4").reshape(shape)


def floats_from_json(data: Any, shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
    """A tensor of numbers in JSON, flat or nested."""
    try:
        array = np.asarray(data)
    except (ValueError, RecursionError):
        raise TensorError(f"Input {name!r}: its rows differ in length.") from None
    if array.dtype.kind not in "fiu" or array.ndim == 0:
        raise TensorError(f"Input {name!r}: its data must be numbers.")
    _check_count(array.size, math.prod(shape), name)
    return array.astype(np.float64).reshape(shape)


def to_binary(array: NDArray[Any] | Sequence[bytes]) -> bytes:
    """An output tensor as raw bytes; a sequence of bytes becomes a BYTES tensor."""
    if isinstance(array, np.ndarray):
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return b"".join(_LENGTH.pack(len(element)) + element for element in array)


def _check_count(found: int, expected: int, name: str) -> None:
    if found != expected:
        more = "more" if found > expected else str(found)
        raise TensorError(f"Input {name!r}: its shape says {expected} elements, not {more}.")


def _flattened(data: Any, name: str) -> Iterable[Any]:
    if not isinstance(data, list):
        raise TensorError(f"Input {name!r} needs data: a list.")
    for element in data:
        if isinstance(element, list):
            yield from element  # [n, 1] may come nested
        else:
            yield element
