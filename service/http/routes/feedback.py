"""`POST /feedback`: ground truth that arrives later."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import ValidationError

from san_core.command_line import what_is_wrong
from service.errors import ParameterError
from service.http.access.limits import ClientLimits
from service.http.openapi import problems, reference
from service.http.schemas import FeedbackRequest, FeedbackSchema
from service.http.upload.body import Incoming
from service.serving.quality.feedback import resolve_truth
from service.serving.service import Service

_MAX_BYTES = 65_536

_REQUEST_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": reference(FeedbackRequest)}},
    }
}


_HELP = 'Send JSON as {"request_id": "…", "label": "…"} or {"request_id": "…", "index": 207}.'


def read_feedback(body: bytes) -> FeedbackRequest:
    """Parse and check a body; a wrong one is one sentence."""
    try:
        return FeedbackRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise ParameterError(f"{where} {what_is_wrong(first)}. {_HELP}", where) from None


def feedback_router(service: Service, limits: ClientLimits) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["feedback"])

    # The framework would read a body of any size before it looks at it.
    @router.post(
        "/feedback",
        summary="Say what an image really was",
        responses=problems(401, 404, 408, 409, 413, 422, 503),
        openapi_extra=_REQUEST_BODY,
    )
    async def feedback(request: Request) -> FeedbackSchema:
        """The truth about an earlier answer; it counts towards the live accuracy of its size."""
        timeout_s = service.settings.receive_timeout_s
        incoming = Incoming(
            request.scope, request.receive, limits, max_bytes=_MAX_BYTES, timeout_s=timeout_s
        )
        try:
            given = read_feedback(await incoming.read())
        finally:
            incoming.allowance.close()
        manifest = service.answered_by(given.request_id).manifest
        model = manifest.name, manifest.version
        service.feedback.check_model(given.request_id, model)  # before its classes are looked up
        truth = resolve_truth(manifest.classes, label=given.label, index=given.index)
        judged = service.observer.judge(given.request_id, truth, model)
        return FeedbackSchema(
            request_id=given.request_id,
            correct=judged.correct,
            in_top5=judged.in_top5,
            resolution=judged.resolution,
        )

    return router
