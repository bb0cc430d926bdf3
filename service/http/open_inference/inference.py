"""An inference request through the pipeline: each image admitted, chosen for, batched alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from san_core.preprocessing import Preprocessing
from service.errors import NotReadyError, ParameterError
from service.http.open_inference.request import PIXELS, InferRequest
from service.http.open_inference.response import Row, encode_response
from service.request.answer import Answer
from service.request.terms import Terms
from service.serving.pipeline import Pipeline, Pixels

_BEYOND = 4.0
"""How far pixels may leave the range that preprocessing gives; noise may, raw bytes may not."""


class Siblings:
    """The images of one request: all are answered, or none is."""

    def __init__(self, count: int) -> None:
        self.refusal: Exception | None = None
        self._missing = count
        self._all = asyncio.Event()

    async def answered(self) -> None:
        """One more has its answer; wait for the rest."""
        self._missing -= 1
        if not self._missing:
            self._all.set()
        await self._all.wait()


class ImageExchange:
    """One image of an inference request as the pipeline sees it."""

    def __init__(
        self,
        image: bytes | Pixels,
        terms: Terms,
        request_id: str,
        started_ms: float,
        client: str,
        siblings: Siblings,
    ) -> None:
        self.request_id = request_id
        self.terms = terms
        self.started_ms = started_ms
        self.client = client
        self.traceparent: str | None = None
        self.expected_bytes = len(image) if isinstance(image, bytes) else image.nbytes
        self.given: Answer | None = None
        self._image = image
        self._siblings = siblings

    @property
    def cancelled_by(self) -> Exception | None:
        """What befell another image, if that is why this one is cancelled."""
        return self._siblings.refusal

    async def receive(self) -> bytes | Pixels:
        """The image; it is here already."""
        return self._image

    async def answer(self, answer: Answer) -> None:
        """Keep the answer until all images have theirs."""
        self.given = answer
        await self._siblings.answered()


def check_range(pixels: NDArray[np.float32], preprocessing: Preprocessing) -> None:
    """Refuse pixels that were plainly never normalised, instead of answering nonsense."""
    ends = np.stack([preprocessing.offset, preprocessing.offset + 255 * preprocessing.scale])
    low, high = float(pixels.min()), float(pixels.max())
    if max(-low, high) > _BEYOND * float(np.abs(ends).max()):
        raise ParameterError(
            f"Input {PIXELS!r} holds values from {low:g} to {high:g}; preprocessing gives "
            f"{ends.min():.2f} to {ends.max():.2f}: (x / 255 - mean) / std, as the metadata says.",
            PIXELS,
        )


async def infer(
    pipeline: Pipeline, request: InferRequest, request_id: str, started_ms: float, client: str
) -> list[Answer]:
    """Answers in the order of the images; if one is refused, so is the request."""
    images: Sequence[bytes | Pixels] = request.images
    if request.pixels is not None:
        images = list(request.pixels)
    siblings = Siblings(len(images))
    exchanges = [
        ImageExchange(image, request.terms, name, started_ms, client, siblings)
        for image, name in zip(images, image_ids(request_id, len(images)), strict=True)
    ]

    async def classify(exchange: ImageExchange) -> None:
        try:
            await pipeline.classify(exchange)
        except Exception as error:
            # Known before the group cancels the others, which will ask why.
            siblings.refusal = siblings.refusal or error
            raise

    if len(exchanges) == 1:
        await pipeline.classify(exchanges[0])
    else:
        try:
            async with asyncio.TaskGroup() as group:
                for exchange in exchanges:
                    group.create_task(classify(exchange))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
    answers = [exchange.given for exchange in exchanges if exchange.given is not None]
    if len({(answer.record.model, answer.record.model_version) for answer in answers}) != 1:
        raise NotReadyError("The bundle was swapped while the request was served; send it again.")
    return answers


def image_ids(request_id: str, count: int) -> list[str]:
    """The id of each image, for feedback: the request's own, numbered if there are several."""
    return [request_id] if count == 1 else [f"{request_id}-{row}" for row in range(count)]


def encode_answers(
    request: InferRequest, answers: Sequence[Answer], request_id: str
) -> tuple[bytes, int | None]:
    """The response's body, and how much of it is JSON; None if all of it is."""
    rows = []
    for answer in answers:
        assert answer.record.point is not None
        resolution = answer.record.point.resolution
        rows.append(Row(answer.logits, answer.scores, resolution, answer.predictions))
    # Of several images the one that got the least speaks for all.
    least = answers[min(range(len(rows)), key=lambda row: rows[row].resolution)].record
    assert least.point is not None
    parameters: dict[str, str | float | int | bool] = {
        "request_id": request_id,
        "resolution": least.point.resolution,
        "mode": str(least.point.mode),
        "reason": least.reason,
        "predicted_ms": round(max(answer.record.predicted_ms or 0.0 for answer in answers), 3),
        "spent_ms": round(max(answer.record.timing.total for answer in answers), 3),
        "budget_met": all(answer.record.met for answer in answers),
    }
    if least.expected_accuracy is not None:
        parameters["expected_accuracy"] = least.expected_accuracy
    return encode_response(
        request.outputs,
        rows,
        model=least.model,
        version=least.model_version,
        id=request_id if request.id is None else request.id,
        parameters=parameters,
    )
