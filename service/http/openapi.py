"""What the OpenAPI document says beyond the routes: every error is a problem, of its own type."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from pydantic import BaseModel
from starlette.types import ASGIApp

from service.errors import PROBLEM_JSON
from service.http.schemas import FeedbackRequest, ProblemSchema

Responses = dict[int | str, dict[str, Any]]

_DESCRIPTIONS = {
    400: "Not an image, corrupt or truncated",
    401: "No API key, or a wrong one",
    403: "Not allowed from another machine without a key",
    404: "Nothing of that name is here",
    408: "The body came too slowly",
    409: "It cannot be done as things stand",
    413: "Too many bytes, pixels, scans or frames",
    415: "An image format that is not decoded",
    422: "A parameter cannot be used, or the budget is impossible and on_miss=refuse",
    429: "Overloaded, at the door or in the queue; Retry-After says when to come back",
    503: "Not ready, or draining",
}
# Named here because routes that read their bodies themselves cannot name them to the framework.
_ALSO: tuple[type[BaseModel], ...] = (ProblemSchema, FeedbackRequest)


def reference(model: type[BaseModel]) -> dict[str, str]:
    """A schema by its name."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def problem(description: str) -> dict[str, Any]:
    """A response that is a problem."""
    return {
        "description": description,
        "content": {PROBLEM_JSON: {"schema": reference(ProblemSchema)}},
    }


def problems(*statuses: int) -> Responses:
    """The problems a route may answer, beside those that any may."""
    return {status: problem(_DESCRIPTIONS[status]) for status in statuses}


class Api(FastAPI):
    """FastAPI that leaves errors to the `Problems` layer, and shows them so in its document."""

    def __init__(self, **options: Any) -> None:
        # With a default the framework leaves its own 422 out.
        super().__init__(responses={"default": problem("Any other problem")}, **options)

    def build_middleware_stack(self) -> ASGIApp:
        """The router alone. Starlette's own layers would answer errors before `Problems` could."""
        return AsyncExitStackMiddleware(self.router)

    def openapi(self) -> dict[str, Any]:
        """The document."""
        document = super().openapi()
        schemas = document["components"]["schemas"]
        for model in _ALSO:
            schemas.setdefault(model.__name__, model.model_json_schema())
        return document
