"""What the OpenAPI document says beyond the routes.

An introduction, the keys, and every error as a problem of its own type with a real example.
"""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from pydantic import BaseModel
from starlette.types import ASGIApp

from san_core.errors import NotAnImageError, SanError, UnsupportedFormatError
from service.errors import (
    PROBLEM_JSON,
    BodyTooLargeError,
    ForbiddenError,
    HttpError,
    ImpossibleBudgetError,
    NotReadyError,
    OverloadedError,
    Problem,
    RepeatedFeedbackError,
    SlowClientError,
    UnauthorisedError,
)
from service.http.hints import hint
from service.http.schemas import FeedbackRequest, ProblemSchema

Responses = dict[int | str, dict[str, Any]]

DESCRIPTION = """
Send an image and say how long you can wait. The service picks the image size that gives the best
accuracy in that time, classifies, and says what it chose, why, and whether the deadline was met.

```
curl --data-binary @photo.jpg 'http://localhost:8000/classify?budget_ms=20'
```

- **budget**: milliseconds from the first byte received to the first byte of the answer. Receiving,
  queueing, decoding and the network all count; the way to and from the service does not.
- **resolution**: side of the square that the network sees, in pixels. Larger is slower and more
  accurate.
- **mode**: how weights for a size between the trained ones are made. Leave it out: the measured
  best is taken.
- **precision**: `float` or `int8` arithmetic.
- **operating point**: one (resolution, mode, precision), with its measured accuracy and its latency
  on this host.

Every error is `application/problem+json` with a sentence in `detail` that says what to do. Keys, if
the service asks for them, go into `Authorization: Bearer KEY` or `X-API-Key: KEY`.
""".strip()

TAGS = [
    {"name": "classify", "description": "Images in, classes out, within a budget."},
    {"name": "resolutions", "description": "What this host can offer, and what it would choose."},
    {"name": "feedback", "description": "Ground truth that arrives later."},
    {"name": "operations", "description": "Probes, metrics, reload."},
    {
        "name": "open inference protocol",
        "description": "The same for clients of Triton, KServe and MLServer.",
    },
]

_REQUEST_ID = "5c1f0c4be6d14a0f9d2f1a77"
PROBLEMS: dict[int, tuple[str, SanError]] = {
    400: (
        "Not an image, corrupt or truncated",
        NotAnImageError("These bytes are not an image; send one of JPEG, PNG, WEBP."),
    ),
    401: (
        "No API key, or a wrong one",
        UnauthorisedError("Send an API key as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'."),
    ),
    403: (
        "Not allowed from another machine without a key",
        ForbiddenError("Set SAN_ADMIN_KEYS to use this from another machine or beside API keys."),
    ),
    404: (
        "Nothing of that name is here",
        HttpError(404, "Not Found", {}, hint(404, "GET", "/clasify")),
    ),
    408: (
        "The body came too slowly",
        SlowClientError("The body did not arrive within 10 s."),
    ),
    409: (
        "It cannot be done as things stand",
        RepeatedFeedbackError(f"Feedback for request {_REQUEST_ID!r} was already given."),
    ),
    413: (
        "Too many bytes, pixels, scans or frames",
        BodyTooLargeError("The body may have at most 20000000 bytes."),
    ),
    415: (
        "An image format that is not decoded",
        UnsupportedFormatError("PSD images are not decoded here; send one of JPEG, PNG, WEBP."),
    ),
    422: (
        "A parameter cannot be used, or the budget is impossible and on_miss=refuse",
        ImpossibleBudgetError(
            "No point fits 1 ms: the fastest, 64 px (ideal, int8), takes 4.8 ms on this host.",
            4.8,
            0.247,
        ),
    ),
    429: (
        "Overloaded, on arrival or in the queue; Retry-After says when to try again",
        OverloadedError(
            "The load leaves no room for 5 ms: even the fastest point would take 31 ms.", 42.0
        ),
    ),
    503: (
        "Not ready, or draining",
        NotReadyError(
            "The service is starting: building the first networks.",
            progress={"done": 1, "total": 4, "seconds_left": 1.4},
        ),
    ),
}
"""What each status means, and an error that is answered with it."""
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
    """The problems a route may answer, each with an example, beside those that any may."""
    found: Responses = {}
    for status in statuses:
        description, error = PROBLEMS[status]
        found[status] = problem(description)
        example = orjson.loads(Problem(error, _REQUEST_ID).body)
        found[status]["content"][PROBLEM_JSON]["example"] = example
    return found


class Api(FastAPI):
    """FastAPI that leaves errors to the `Problems` layer, and shows them so in its document."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            # With a default the framework leaves its own 422 out.
            responses={"default": problem("Any other problem")},
            description=DESCRIPTION,
            openapi_tags=TAGS,
            docs_url=None,  # a page of our own, which needs no other host
            redoc_url=None,
            **options,
        )

    def build_middleware_stack(self) -> ASGIApp:
        """The router alone. Starlette's own layers would answer errors before `Problems` could."""
        return AsyncExitStackMiddleware(self.router)

    def openapi(self) -> dict[str, Any]:
        """The document."""
        document = super().openapi()
        components = document["components"]
        for model in _ALSO:
            components["schemas"].setdefault(model.__name__, model.model_json_schema())
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        # An empty one first: without SAN_API_KEYS no key is asked for.
        document["security"] = [{}, {"bearer": []}, {"key": []}]
        return document
