"""What both clients share: arguments in, a conversation out that ends with a typed answer."""

from __future__ import annotations

import difflib
import json
from dataclasses import replace
from typing import TypedDict, Unpack

from san_client.answers import (
    Answer,
    Judgement,
    OperatingPoint,
    Version,
    read_answer,
    read_judgement,
    read_points,
    read_version,
)
from san_client.conversation import Conversation, Manner, OnMiss, Send, converse, limits
from san_client.errors import ConnectionFailedError, UnavailableError
from san_client.retries import Retries


class Terms(TypedDict, total=False):
    """What may be said about an image to classify; None is as good as nothing."""

    budget_ms: float | None
    """When the answer is due, counted from the call: the network and retries included."""
    timeout_ms: float | None
    """When to stop waiting for any word of the service.

    The client's own timeout if not given, and the budget itself with `on_miss="refuse"`.
    """
    resolution: int | None
    """Run at this one, whatever the budget."""
    mode: str | None
    """`proxy`, `ideal` or `data_free`."""
    precision: str | None
    """`float` or `int8`."""
    min_accuracy: float | None
    """Of 1: no point that is expected to be right less often."""
    top_k: int | None
    """How many classes; 5 if not given."""
    on_miss: OnMiss
    """What if the budget cannot be met: `answer` late, the default, or `refuse` at once."""


def classify_call(
    manner: Manner, started_ms: float, image: bytes, **terms: Unpack[Terms]
) -> Conversation[Answer]:
    """`POST /classify`, by a caller that began at `started_ms`."""
    unknown = terms.keys() - Terms.__annotations__.keys()
    if unknown:
        wrong = min(unknown)
        close = difflib.get_close_matches(wrong, Terms.__annotations__, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise TypeError(f"classify takes no {wrong}{hint}")
    on_miss = terms.get("on_miss", "answer")
    within = limits(
        manner,
        started_ms=started_ms,
        budget_ms=terms.get("budget_ms"),
        timeout_ms=terms.get("timeout_ms"),
        on_miss=on_miss,
    )
    asked = {
        "resolution": terms.get("resolution"),
        "mode": terms.get("mode"),
        "precision": terms.get("precision"),
        "min_accuracy": terms.get("min_accuracy"),
        "top_k": terms.get("top_k"),
        "on_miss": None if on_miss == "answer" else on_miss,
    }
    params = {name: str(value) for name, value in asked.items() if value is not None}
    send = Send("POST", "/classify", params, image, "application/octet-stream")
    result = yield from converse(manner, send, within)
    return read_answer(result.data, round_trip_ms=result.took_ms, attempts=result.attempts)


def feedback_call(
    manner: Manner, request_id: str, *, label: str | None, index: int | None
) -> Conversation[Judgement]:
    """`POST /feedback`."""
    if (label is None) == (index is None):
        raise ValueError("give either a label or an index")
    truth = {"label": label} if index is None else {"index": index}
    body = json.dumps({"request_id": request_id} | truth).encode()
    send = Send("POST", "/feedback", content=body, content_type="application/json")
    result = yield from converse(manner, send)
    return read_judgement(result.data)


def resolutions_call(manner: Manner) -> Conversation[tuple[OperatingPoint, ...]]:
    """`GET /resolutions`."""
    result = yield from converse(manner, Send("GET", "/resolutions"))
    return read_points(result.data)


def version_call(manner: Manner) -> Conversation[Version]:
    """`GET /version`."""
    result = yield from converse(manner, Send("GET", "/version"))
    return read_version(result.data)


def ready_call(manner: Manner) -> Conversation[bool]:
    """`GET /readyz`, once: not being ready is an answer."""
    once = replace(manner, retries=Retries(attempts=1))
    try:
        yield from converse(once, Send("GET", "/readyz"))
    except (ConnectionFailedError, UnavailableError):
        return False
    return True
