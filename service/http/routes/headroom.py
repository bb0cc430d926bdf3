"""`GET /headroom`, and the same in a header of every answer: what could be promised now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.fleet.headroom import HEADER, Headroom
from service.http.access.route_facts import Access, facts
from service.http.openapi import problems
from service.serving.service import Service


class PromisedSchema(BaseModel):
    """One accuracy and what it takes to get it now."""

    accuracy: float
    budget_ms: float = Field(description="the smallest budget at which it is served now")


class HeadroomSchema(BaseModel):
    """What a request that came now could be promised, for a photo of 500 x 375 pixels."""

    points: list[PromisedSchema]
    work_ms: float = Field(description="what one more request adds to the wait of all")
    wait_ms: float = Field(description="how long the work inside keeps the engine busy")
    price: float = Field(description="accuracy that a millisecond of the engine is worth to others")
    arrivals_per_s: float
    utilisation: float = Field(description="share of a smallest budget that the work inside takes")


def headroom_router(service: Service) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["operations"])

    @router.get(
        "/headroom",
        summary="What this replica could promise now",
        responses=problems(401, 503),
        openapi_extra=facts(Access.METRICS),
    )
    async def headroom() -> HeadroomSchema:
        """What this replica could promise now, for a router that chooses among several."""
        found = service.headroom()
        if found is None:
            raise service.not_ready()
        return HeadroomSchema(
            points=[PromisedSchema(accuracy=a, budget_ms=round(ms, 3)) for a, ms in found.points],
            work_ms=round(found.work_ms, 3),
            wait_ms=round(found.wait_ms, 3),
            price=round(found.price, 6),
            arrivals_per_s=round(found.arrivals_per_s, 1),
            utilisation=round(found.utilisation, 3),
        )

    return router


class LoadReport:
    """Adds ORCA's header to the answer of every POST, a refusal included."""

    def __init__(self, app: ASGIApp, headroom: Callable[[], Headroom | None]) -> None:
        self._app = app
        self._headroom = headroom
        self._last: tuple[Headroom | None, bytes] = None, b""
        """Many answers share a report: it is written once."""

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        if scope["method"] != "POST":
            return self._app(scope, receive, send)

        def reported(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                headroom = self._headroom()
                if headroom is not None:
                    if headroom is not self._last[0]:
                        self._last = headroom, headroom.header()
                    message["headers"] = [*message["headers"], (HEADER, self._last[1])]
            return send(message)

        return self._app(scope, receive, reported)
