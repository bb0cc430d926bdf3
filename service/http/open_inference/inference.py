"""An inference request through the pipeline: its images are planned and run as one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from san_core.preprocessing import Preprocessing
from service.errors import ParameterError
from service.http.open_inference.request import PIXELS, InferRequest
from service.http.open_inference.response import Row, encode_response
from service.request.answer import Answer, share
from service.serving.pipeline import Given, Pipeline, Pixels, Received

_BEYOND = 4.0
"""How far pixels may leave the range that preprocessing gives; noise may, raw bytes may not."""


def with_bytes(request: InferRequest, preprocessing: Preprocessing) -> InferRequest:
    """Undo a client's normalising: engines take bytes.

    Pixels that were plainly never normalised are refused, instead of answering nonsense.
    """
    if request.pixels is None:
        return request
    pixels = np.asarray(request.pixels, np.float32)
    ends = np.stack([preprocessing.offset, preprocessing.offset + 255 * preprocessing.scale])
    low, high = float(pixels.min()), float(pixels.max())
    if max(-low, high) > _BEYOND * float(np.abs(ends).max()):
        raise ParameterError(
            f"Input {PIXELS!r} holds values from {low:g} to {high:g}; preprocessing gives "
            f"{ends.min():.2f} to {ends.max():.2f}: (x / 255 - mean) / std, as the metadata says.",
            PIXELS,
        )
    return replace(request, pixels=preprocessing.denormalise(pixels))


async def infer(
    pipeline: Pipeline, request: InferRequest, request_id: str, started_ms: float, client: str
) -> Answer:
    """Answer all images at one point; if one is refused, so is the request."""
    images: list[bytes] | list[Pixels] = list(request.images)
    if request.pixels is not None:
        images = list(request.pixels.astype(np.uint8, copy=False))
    received: Received = images if len(images) > 1 else images[0]
    exchange = Given(request_id, request.terms, started_ms, client, received)
    await pipeline.classify(exchange)
    assert exchange.answered is not None
    return exchange.answered


def encode_answer(
    request: InferRequest, answer: Answer, request_id: str
) -> tuple[bytes, int | None]:
    """The response's body, and how much of it is JSON; None if all of it is."""
    record = answer.record
    assert record.point is not None
    resolution = record.point.resolution
    rows = [Row(x.logits, x.scores, resolution, x.predictions) for x in answer.results]
    parameters: dict[str, str | float | int | bool] = {
        "request_id": request_id,
        "resolution": resolution,
        "mode": str(record.point.mode),
        "reason": record.reason,
        "predicted_ms": round(record.predicted_ms or 0.0, 3),
        "spent_ms": round(record.timing.total, 3),
    }
    if request.terms.budget_ms is not None:
        parameters["budget_met"] = record.met
    if (expected := share(record.expected_accuracy)) is not None:
        parameters["expected_accuracy"] = expected
    return encode_response(
        request.outputs,
        rows,
        model=record.model,
        version=record.model_version,
        id=request_id if request.id is None else request.id,
        parameters=parameters,
    )
