"""`POST /feedback`: ground truth that arrives later."""

from __future__ import annotations

from fastapi import APIRouter

from service.errors import NotReadyError
from service.feedback import resolve_truth
from service.lifecycle import Service
from service.schemas import FeedbackRequest, FeedbackSchema


def feedback_router(service: Service) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["feedback"])

    @router.post("/feedback")
    async def feedback(body: FeedbackRequest) -> FeedbackSchema:
        """Say what an image really was; counts towards the live accuracy of its resolution."""
        if service.deployment is None:
            raise NotReadyError("No bundle is loaded yet; try again soon.")
        classes = service.deployment.manifest.classes
        truth = resolve_truth(classes, label=body.label, index=body.index)
        judged = await service.judge(body.request_id, truth)
        return FeedbackSchema(
            request_id=body.request_id,
            correct=judged.correct,
            in_top5=judged.in_top5,
            resolution=judged.resolution,
        )

    return router
