"""`/v2`: the Open Inference Protocol over HTTP.

Its clients send no Content-Type and put binary tensors behind the JSON, so inference reads the raw
body; the rest are ordinary routes.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from importlib import metadata
from typing import Any

from fastapi import APIRouter
from starlette.types import Receive, Scope, Send

from san_core.preprocessing import Preprocessing
from service.errors import CompressedBodyError, UnknownModelError
from service.http.access.limits import ClientLimits
from service.http.access.route_facts import Access, facts
from service.http.connection.protocol import FIRST_BYTE
from service.http.middleware import REQUEST_ID, header
from service.http.open_inference.inference import encode_answer, infer, with_bytes
from service.http.open_inference.request import InferRequest, parse_request
from service.http.open_inference.schemas import (
    REQUEST_BODY,
    InferRequestSchema,
    InferSchema,
    LiveSchema,
    ModelMetadataSchema,
    ReadySchema,
    ServerSchema,
    model_metadata,
)
from service.http.openapi import problem, problems
from service.http.routes.classify import PROBLEMS, Endpoint, note_refusal, raw_route
from service.http.upload.body import Incoming
from service.request.client import CLIENT
from service.serving.bundles.deployment import Deployment
from service.serving.service import Service

_BINARY = b"application/octet-stream"
_HEADER_LENGTH = b"inference-header-content-length"
_PARSED_AT_ONCE = 65_536
"""Larger bodies are taken apart off the event loop."""
_MODEL_PROBLEMS = problems(401, 503) | {404: problem("Another model is served here")}
_PUBLIC = facts(Access.PUBLIC)
_USABLE_ID = re.compile(r"[A-Za-z0-9._~-]{1,60}")


def served(service: Service, name: str, version: str | None = None) -> Deployment:
    """The deployment a path names."""
    deployment = service.deployed()
    manifest = deployment.manifest
    if name != manifest.name or version not in (None, manifest.version):
        raise UnknownModelError(
            f"The model served here is {manifest.name!r}, version {manifest.version!r}."
        )
    return deployment


class InferEndpoint(Endpoint):
    """The ASGI application behind `infer`."""

    def __init__(self, service: Service, limits: ClientLimits) -> None:
        super().__init__(service.pipeline, limits, service.settings)
        self._service = service

    async def begin(self, scope: Scope, incoming: Incoming, send: Send) -> None:
        """Read what is asked for, and have it answered."""
        service = self._service
        try:
            request = await self._admit(scope, incoming)
        except Exception as error:
            note_refusal(service.pipeline, scope, error)
            raise
        incoming.watch()
        request_id = scope[REQUEST_ID]
        if request.id is not None and _USABLE_ID.fullmatch(request.id):
            request_id = request.id
        answer = await infer(
            service.pipeline, request, request_id, scope[FIRST_BYTE], scope[CLIENT]
        )
        incoming.close()
        body, json_size = encode_answer(request, answer, request_id)
        facts = [fact for fact in answer.headers() if fact[0] != b"x-request-id"]
        headers = [
            (b"content-type", b"application/json" if json_size is None else _BINARY),
            (b"content-length", str(len(body)).encode()),
            (b"x-request-id", request_id.encode()),
            *facts,
        ]
        if json_size is not None:
            headers.append((_HEADER_LENGTH, str(json_size).encode()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _admit(self, scope: Scope, incoming: Incoming) -> InferRequest:
        """The request, as far as it can be judged before its images go their way."""
        service, path = self._service, scope["path_params"]
        service.admission.check()
        deployment = served(service, path["name"], path.get("version"))
        if (header(scope, b"content-encoding") or b"identity").lower() != b"identity":
            raise CompressedBodyError("Send the body without a Content-Encoding.")
        drain_ms = service.machinery.schedule.drain_ms(service.clock())
        # The budget is in the body, so a place is needed to read it; the images then get one.
        with service.admission.enter(0, drain_ms):
            request = await self._read(scope, incoming, deployment.preprocessing)
        incoming.allowance.add_requests(len(request) - 1)
        return request

    async def _read(
        self, scope: Scope, incoming: Incoming, preprocessing: Preprocessing
    ) -> InferRequest:
        body = await incoming.read()
        length, budget = _text(scope, _HEADER_LENGTH), _text(scope, b"x-budget-ms")

        def parsed() -> InferRequest:
            return with_bytes(parse_request(body, length, budget), preprocessing)

        if len(body) <= _PARSED_AT_ONCE:
            return parsed()
        return await self._service.machinery.decoders.submit(parsed, scope[FIRST_BYTE])


def _text(scope: Scope, name: bytes) -> str | None:
    value = header(scope, name)
    return None if value is None else value.decode("latin-1")


def open_inference_router(service: Service, limits: ClientLimits) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/v2", tags=["open inference protocol"])

    @router.get("", summary="The server")
    async def server() -> ServerSchema:
        """The server and its extensions."""
        return ServerSchema(version=metadata.version("san-serve"))

    @router.get("/health/live", summary="Is it alive?", openapi_extra=_PUBLIC)
    async def live() -> LiveSchema:
        """Alive: the event loop answers."""
        return LiveSchema(live=True)

    @router.get(
        "/health/ready", summary="Is it ready?", responses=problems(503), openapi_extra=_PUBLIC
    )
    async def ready() -> ReadySchema:
        """Ready: a bundle is loaded and its frontier was measured on this host."""
        if not service.is_ready:
            raise service.not_ready()
        return ReadySchema(ready=True)

    @router.get("/models/{name}", summary="The model", responses=_MODEL_PROBLEMS)
    async def model(name: str) -> ModelMetadataSchema:
        """Inputs, outputs and preprocessing of the model."""
        return described(served(service, name))

    @router.get(
        "/models/{name}/versions/{version}",
        summary="A version of the model",
        responses=_MODEL_PROBLEMS,
    )
    async def model_version(name: str, version: str) -> ModelMetadataSchema:
        """Inputs, outputs and preprocessing of a version of the model."""
        return described(served(service, name, version))

    @router.get("/models/{name}/ready", summary="Is the model ready?", responses=_MODEL_PROBLEMS)
    async def model_ready(name: str) -> ReadySchema:
        """Whether the model answers."""
        served(service, name)
        await ready()
        return ReadySchema(name=name, ready=True)

    @router.get(
        "/models/{name}/versions/{version}/ready",
        summary="Is a version of the model ready?",
        responses=_MODEL_PROBLEMS,
    )
    async def model_version_ready(name: str, version: str) -> ReadySchema:
        """Whether a version of the model answers."""
        served(service, name, version)
        await ready()
        return ReadySchema(name=name, ready=True)

    def described(deployment: Deployment) -> ModelMetadataSchema:
        limit = service.settings.max_resolution
        return model_metadata(deployment.manifest, deployment.engine.name, limit)

    router.include_router(_infer_router(InferEndpoint(service, limits)))
    return router


def _infer_router(endpoint: Callable[[Scope, Receive, Send], Awaitable[None]]) -> APIRouter:
    router = APIRouter(route_class=raw_route(endpoint))
    options: dict[str, Any] = {
        "response_model": InferSchema,
        "responses": PROBLEMS | _MODEL_PROBLEMS,
        "openapi_extra": facts(Access.API, classifies=True, **REQUEST_BODY),
    }

    @router.post("/models/{name}/infer", summary="Classify images or pixels", **options)
    async def infer_(name: str, body: InferRequestSchema) -> None:
        """Classify images, or preprocessed pixels at a resolution of the client's choice."""

    @router.post(
        "/models/{name}/versions/{version}/infer",
        summary="Classify with a version of the model",
        **options,
    )
    async def infer_version(name: str, version: str, body: InferRequestSchema) -> None:
        """Classify with a version of the model."""

    return router
