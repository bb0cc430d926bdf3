"""What both clients share: arguments in, a conversation out."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from san_client.conversation import Conversation, Manner, OnMiss, Send, converse
from san_client.retries import Retries

Image = bytes | bytearray | memoryview | os.PathLike[str] | BinaryIO
"""An image file: its bytes, its path, or an open file."""


def image_bytes(image: Image) -> bytes:
    """The bytes of an image file."""
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, os.PathLike):
        return Path(image).read_bytes()
    return image.read()


def classify_call(
    manner: Manner,
    image: bytes,
    *,
    budget_ms: float | None,
    resolution: int | None,
    mode: str | None,
    min_accuracy: float | None,
    top_k: int | None,
    on_miss: OnMiss,
) -> Conversation:
    """`POST /classify`."""
    given = {
        "resolution": resolution,
        "mode": mode,
        "min_accuracy": min_accuracy,
        "top_k": top_k,
        "on_miss": None if on_miss == "answer" else on_miss,
    }
    params = {name: str(value) for name, value in given.items() if value is not None}
    send = Send("POST", "/classify", params, image, "application/octet-stream")
    return converse(manner, send, budget_ms, on_miss)


def feedback_call(
    manner: Manner, request_id: str, *, label: str | None, index: int | None
) -> Conversation:
    """`POST /feedback`."""
    if (label is None) == (index is None):
        raise ValueError("give either a label or an index")
    truth = {"label": label} if index is None else {"index": index}
    body = json.dumps({"request_id": request_id} | truth).encode()
    send = Send("POST", "/feedback", content=body, content_type="application/json")
    return converse(manner, send)


def get_call(manner: Manner, path: str) -> Conversation:
    """Any GET."""
    return converse(manner, Send("GET", path))


def ready_call(manner: Manner) -> Conversation:
    """`GET /readyz`, once: not being ready is an answer."""
    return get_call(replace(manner, retries=Retries(attempts=1)), "/readyz")
