"""An inference request through the pipeline: its images are planned and run as one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from san_core.preprocessing import Preprocessing
from service.errors import ParameterError
from service.http.open_inference.request import PIXELS, InferRequest
from service.http.open_inference.response import Row, encode_response
from service.request.answer import Answer, share
from service.request.terms import Terms
from service.serving.pipeline import Pipeline, Pixels

_BEYOND = 4.0
"""How far pixels may leave the range that preprocessing gives; noise may, raw bytes may not."""


class ImagesExchange:
    """The images of an inference request as the pipeline sees them: one plan for all."""

    traceparent: str | None = None

    def __init__(
        self,
        images: bytes | Pixels | list[bytes] | list[Pixels],
        terms: Terms,
        request_id: str,
        started_ms: float,
        client: str,
        size: int,
    ) -> None:
        self.request_id = request_id
        self.terms = terms
        self.started_ms = started_ms
        self.client = client
        self.expected_bytes = size
        self.given: Answer | None = None
        self._images = images

    async def receive(self) -> bytes | Pixels | list[bytes] | list[Pixels]:
        """The images; they are here already."""
        return self._images

    async def answer(self, answer: Answer) -> None:
        """Keep the answer; the route writes it."""
        self.given = answer


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
    size = sum(len(x) if isinstance(x, bytes) else x.nbytes for x in images)
    exchange = ImagesExchange(
        images if len(images) > 1 else images[0],
        request.terms,
        request_id,
        started_ms,
        client,
        size,
    )
    await pipeline.classify(exchange)
    assert exchange.given is not None
    return exchange.given


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
