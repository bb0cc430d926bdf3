"""`GET /plan`: what the policy would choose now, without an image."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from san_core.preprocessing import ImageHeader
from service.http.openapi import problems
from service.http.schemas import PlanSchema
from service.request.answer import share
from service.request.terms import MAX_BUDGET_MS, parse_terms
from service.serving.planning import plan
from service.serving.service import Service

_IMAGE = ("bytes", "width", "height")


def plan_router(service: Service) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["resolutions"])

    @router.get(
        "/plan", summary="What would be chosen now, and why", responses=problems(401, 422, 503)
    )
    async def get_plan(
        request: Request,
        budget_ms: Annotated[  # noqa: ARG001 - declared for the document
            float | None,
            Query(gt=0, le=MAX_BUDGET_MS, description="as for /classify", examples=[20]),
        ] = None,
        bytes: Annotated[  # noqa: A002
            int, Query(ge=1, le=1_000_000_000, description="size of the image file")
        ] = 50_000,
        width: Annotated[int, Query(ge=1, le=100_000, description="of the image, in pixels")] = 500,
        height: Annotated[
            int, Query(ge=1, le=100_000, description="of the image, in pixels")
        ] = 375,
    ) -> PlanSchema:
        """Ask the policy as for a JPEG of this size that arrives now.

        Nothing is classified, admitted or remembered. Every parameter of /classify is taken.
        """
        query = request.query_params.multi_items()
        terms = parse_terms(query, request.headers.get("x-budget-ms"), _IMAGE)
        found = plan(
            service.deployed(),
            terms,
            ImageHeader("JPEG", width, height),
            bytes,
            now_ms=service.clock(),
            patience_ms=service.settings.patience_ms,
        )
        return PlanSchema.model_validate(
            {
                "budget_ms": terms.budget_ms,
                "resolution": found.point.resolution,
                "mode": found.point.mode,
                "precision": found.point.precision,
                "verdict": found.verdict,
                "fits": found.verdict == "serve",
                "reason": found.reason,
                "predicted_ms": round(found.predicted_ms, 3),
                "expected_accuracy": share(found.expected_accuracy),
                "accuracy_source": found.accuracy_source,
                "cached": found.cached,
            }
        )

    return router
