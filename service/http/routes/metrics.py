"""`GET /metrics`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.http.access.route_facts import Access, facts
from service.http.exporter import Exporter
from service.http.openapi import problems


def metrics_router(exporter: Exporter) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["operations"])

    @router.get(
        "/metrics",
        summary="Prometheus metrics",
        response_class=Response,
        responses=problems(401),
        openapi_extra=facts(Access.METRICS),
    )
    async def metrics(request: Request) -> Response:
        """Every metric, for Prometheus (text, or OpenMetrics if asked for)."""
        body, content_type = exporter.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    return router
