"""`POST /classify`: raw ASGI on the hot path, documented like any other route."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import lru_cache
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from san_core.errors import SanError
from san_core.frontier import Precision
from san_core.mode import Mode
from san_core.resolution import MAX_RESOLUTION, MIN_RESOLUTION
from service.errors import ParameterError
from service.http.access.limits import ClientLimits
from service.http.access.route_facts import Access, facts
from service.http.connection.protocol import FIRST_BYTE
from service.http.middleware import REQUEST_ID, header, traceparent
from service.http.openapi import problems
from service.http.schemas import ClassifyManySchema, ClassifySchema
from service.http.upload.body import Incoming, Look
from service.http.upload.inputs import images_in
from service.request.answer import Answer
from service.request.client import CLIENT
from service.request.terms import MAX_BUDGET_MS, MAX_TOP_K, OnMiss, Terms, parse_terms
from service.serving.pipeline import Pipeline
from service.settings import Settings

MAX_IMAGES = 64
_JSON = (b"content-type", b"application/json")
_LONGEST_REMEMBERED = 256
"""Bytes of a query string and budget; longer ones are no client's usual terms."""


class HttpExchange:
    """One POST as the pipeline sees it."""

    def __init__(self, scope: Scope, incoming: Incoming, send: Send, look: Look) -> None:
        self.request_id: str = scope[REQUEST_ID]
        self.started_ms: float = scope[FIRST_BYTE]
        self.terms = _terms(scope)
        self.traceparent = traceparent(scope)
        self.client: str = scope[CLIENT]
        self.expected_bytes = 0  # the client's allowance counts them as they arrive
        self._content_type = header(scope, b"content-type")
        self._incoming = incoming
        self._send = send
        self._look = look
        self._many = False

    async def receive(self) -> bytes | list[bytes]:
        """Read the body and find the images in it."""
        body = await self._incoming.read(self._look)
        images, self._many = await images_in(body, self._content_type, most=MAX_IMAGES)
        self._incoming.watch()
        if len(images) == 1:
            return images[0]
        self._incoming.allowance.add_requests(len(images) - 1)
        return images

    async def answer(self, answer: Answer) -> None:
        """Send the answer."""
        self._incoming.close()  # from here on a disconnect is the server's to notice
        body = answer.body(many=self._many)
        headers = [*answer.headers(), _JSON, (b"content-length", b"%d" % len(body))]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _terms(scope: Scope) -> Terms:
    query, budget = scope["query_string"], header(scope, b"x-budget-ms")
    if len(query) + len(budget or b"") > _LONGEST_REMEMBERED:
        return _read_terms(query, budget)
    return _remembered_terms(query, budget)


def _read_terms(query: bytes, budget: bytes | None) -> Terms:
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=32)
    except ValueError:
        raise ParameterError("The query string cannot be read.") from None
    return parse_terms(pairs, None if budget is None else budget.decode("latin-1"))


_remembered_terms = lru_cache(maxsize=1024)(_read_terms)
"""Most clients ask for the same again and again."""


class Endpoint:
    """The ASGI application behind a route that reads its body itself."""

    def __init__(self, pipeline: Pipeline, limits: ClientLimits, settings: Settings) -> None:
        self.pipeline = pipeline
        self._limits = limits
        self._max_bytes = settings.max_body_bytes
        self._timeout_s = settings.receive_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            incoming = Incoming(
                scope, receive, self._limits, max_bytes=self._max_bytes, timeout_s=self._timeout_s
            )
            work = self.begin(scope, incoming, send)
        except SanError as error:
            note_refusal(self.pipeline, scope, error)
            if pause_s := self._limits.penalty_s(scope[CLIENT], error):
                await asyncio.sleep(pause_s)
            raise
        await incoming.serve(work)

    def begin(self, scope: Scope, incoming: Incoming, send: Send) -> Coroutine[Any, Any, None]:
        """What serves it; raise if its head cannot be read."""
        raise NotImplementedError


class ClassifyEndpoint(Endpoint):
    """Behind `/classify`."""

    def begin(self, scope: Scope, incoming: Incoming, send: Send) -> Coroutine[Any, Any, None]:
        """Hand it to the pipeline."""
        return self.pipeline.classify(HttpExchange(scope, incoming, send, self.pipeline.look))


def note_refusal(pipeline: Pipeline, scope: Scope, error: Exception) -> None:
    """Have a request counted and logged that is turned away before the pipeline sees it."""
    pipeline.refused(scope[REQUEST_ID], scope[FIRST_BYTE], traceparent(scope), error)


class _Raw(Response):
    """Hands the connection to an ASGI application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve."""
        await self._app(scope, receive, send)


def raw_route(app: ASGIApp) -> type[APIRoute]:
    """A route class that documents its endpoint's signature but serves with `app`."""

    class RawRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            async def handle(_: Request) -> Response:
                return _Raw(app)

            return handle

    return RawRoute


_OPENAPI: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The image as it is; a form with a field `image`, or several; or JSON with "
        "base64 or data URLs. The bytes decide, not the Content-Type. Several images share one "
        "budget and are planned as one.",
        "content": {
            "image/jpeg": {"schema": {"type": "string", "format": "binary"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["image"],
                    "properties": {
                        "image": {"type": "array", "items": {"type": "string", "format": "binary"}}
                    },
                }
            },
            "application/json": {
                "schema": {
                    "oneOf": [
                        {
                            "type": "object",
                            "required": ["image"],
                            "properties": {"image": {"type": "string", "format": "byte"}},
                        },
                        {
                            "type": "object",
                            "required": ["images"],
                            "properties": {
                                "images": {
                                    "type": "array",
                                    "items": {"type": "string", "format": "byte"},
                                    "minItems": 1,
                                    "maxItems": MAX_IMAGES,
                                }
                            },
                        },
                    ]
                }
            },
        },
    },
    "x-codeSamples": [
        {
            "lang": "curl",
            "source": "curl --data-binary @photo.jpg 'http://localhost:8000/classify?budget_ms=20'",
        }
    ],
}

PROBLEMS = problems(400, 401, 408, 413, 415, 422, 429, 503)


def classify_router(endpoint: Callable[[Scope, Receive, Send], Awaitable[None]]) -> APIRouter:
    """The documented route."""
    router = APIRouter(route_class=raw_route(endpoint), tags=["classify"])

    @router.post(
        "/classify",
        summary="Classify an image within a budget",
        response_model=ClassifySchema | ClassifyManySchema,
        responses=PROBLEMS,
        openapi_extra=facts(Access.API, classifies=True, **_OPENAPI),
    )
    async def classify(
        budget_ms: Annotated[
            float | None,
            Query(
                gt=0,
                le=MAX_BUDGET_MS,
                description="milliseconds from the first byte received to the answer; left out: "
                "the most accurate point",
                openapi_examples={"a photo in 20 ms": {"value": 20}},
            ),
        ] = None,
        resolution: Annotated[
            int | None,
            Query(
                ge=MIN_RESOLUTION,
                le=MAX_RESOLUTION,
                description="run at this size, whatever the budget",
            ),
        ] = None,
        mode: Annotated[
            Mode | None, Query(description="run in this mode; left out: the measured best")
        ] = None,
        precision: Annotated[
            Precision | None, Query(description="run in this arithmetic; left out: the better buy")
        ] = None,
        min_accuracy: Annotated[
            float | None,
            Query(ge=0, le=1, description="consider only points at least this accurate"),
        ] = None,
        top_k: Annotated[
            int, Query(ge=1, le=MAX_TOP_K, description="how many classes to answer")
        ] = 5,
        on_miss: Annotated[
            OnMiss,
            Query(description="if the budget cannot be met: answer as fast as possible, or refuse"),
        ] = OnMiss.ANSWER,
        x_budget_ms: Annotated[
            float | None,
            Header(gt=0, le=MAX_BUDGET_MS, description="the budget, if not in the query"),
        ] = None,
    ) -> None:
        """Classify one image within a budget.

        The service takes the operating point that buys the most accuracy in the time given, and
        says in the answer what it chose and why.
        """

    return router
