"""The gRPC server: thin methods over what serves HTTP, on the same event loop.

A budget starts when the message has arrived, for gRPC does not tell when its first byte did.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from importlib import metadata
from typing import TYPE_CHECKING, Any

import grpc

from san_core.errors import SanError
from service.errors import Problem
from service.grpc.messages import SERVICE, methods
from service.grpc.translation import from_http, to_http
from service.http.access.auth import Keys
from service.http.access.limits import Allowance, ClientLimits
from service.http.access.route_facts import Access
from service.http.open_inference.inference import encode_answer, infer, with_bytes
from service.http.open_inference.request import InferRequest, parse_request
from service.http.open_inference.schemas import ServerSchema, model_metadata
from service.http.routes.open_inference import served
from service.request.client import ClientIdentity

if TYPE_CHECKING:
    from service.serving.service import Service

logger = logging.getLogger(__name__)

_STATUS = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
_USABLE_ID = re.compile(r"[A-Za-z0-9._~-]{1,60}")
Method = Callable[[Any, str], Awaitable[dict[str, Any]]]
"""From a request and the client it comes from to the fields of a response."""


class GrpcServer:
    """The protocol's six methods, on a port of their own."""

    def __init__(
        self,
        service: Service,
        keys: Keys,
        clients: ClientIdentity,
        limits: ClientLimits,
        host: str,
        port: int,
    ) -> None:
        self._service = service
        self._limits = limits
        self._keys = keys
        self._clients = clients
        self._address = f"{host}:{port}"
        self.port = port
        """Where it listens; a free port if 0 was asked for."""
        limit = service.settings.max_body_bytes
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 1),
            ]
        )

    async def start(self) -> None:
        """Listen; a port that is taken is an error."""
        behaviours: dict[str, tuple[Method, Access]] = {
            "ServerLive": (self._server_live, Access.PUBLIC),
            "ServerReady": (self._server_ready, Access.PUBLIC),
            "ServerMetadata": (self._server_metadata, Access.API),
            "ModelReady": (self._model_ready, Access.API),
            "ModelMetadata": (self._model_metadata, Access.API),
            "ModelInfer": (self._model_infer, Access.API),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                self._handler(*behaviours[name], response),
                request_deserializer=request.FromString,
                response_serializer=response.SerializeToString,
            )
            for name, (request, response) in methods().items()
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),)
        )
        try:
            self.port = self._server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise SanError(
                f"gRPC cannot listen on {self._address}; is the port in use? Try --grpc-port N."
            ) from error
        await self._server.start()
        logger.info("gRPC on %s", self._address)

    async def stop(self, grace_s: float) -> None:
        """Let what runs finish."""
        await self._server.stop(grace_s)

    def _handler(self, behave: Method, access: Access, response: Any) -> Any:
        async def handle(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            try:
                headers = [
                    (key.encode(), value if isinstance(value, bytes) else value.encode())
                    for key, value in context.invocation_metadata() or ()
                ]
                scope = {"headers": headers, "client": (_address(context.peer()), 0)}
                self._keys.check(access, headers, self._clients.address(scope))
                found = await behave(request, self._clients.of(scope))
            except SanError as error:
                problem = Problem(error, None)
                default = (
                    grpc.StatusCode.INVALID_ARGUMENT
                    if problem.status < 500
                    else grpc.StatusCode.INTERNAL
                )
                await context.abort(_STATUS.get(problem.status, default), str(error))
            return found if isinstance(found, response) else response(**found)

        return handle

    async def _server_live(self, _request: Any, _client: str) -> dict[str, Any]:
        return {"live": True}

    async def _server_ready(self, _request: Any, _client: str) -> dict[str, Any]:
        return {"ready": self._service.is_ready and not self._service.is_leaving}

    async def _server_metadata(self, _request: Any, _client: str) -> dict[str, Any]:
        return ServerSchema(version=metadata.version("san-serve")).model_dump()

    async def _model_ready(self, request: Any, _client: str) -> dict[str, Any]:
        served(self._service, request.name, request.version or None)
        return await self._server_ready(request, _client)

    async def _model_metadata(self, request: Any, _client: str) -> dict[str, Any]:
        deployment = served(self._service, request.name, request.version or None)
        limit = self._service.settings.max_resolution
        told = model_metadata(deployment.manifest, deployment.engine.name, limit)
        tensor = {"name", "datatype", "shape"}
        return {
            "name": told.name,
            "versions": told.versions,
            "platform": told.platform,
            "inputs": [x.model_dump(include=tensor) for x in told.inputs],
            "outputs": [x.model_dump(include=tensor) for x in told.outputs],
        }

    async def _model_infer(self, request: Any, client: str) -> Any:
        service, started_ms = self._service, self._service.clock()
        request_id = request.id if _USABLE_ID.fullmatch(request.id) else secrets.token_hex(12)
        allowance = Allowance(self._limits, client)
        try:
            allowance.add_requests(1)
            service.admission.check()
            deployment = served(service, request.model_name, request.model_version or None)
            allowance.add_bytes(request.ByteSize())

            def parsed() -> InferRequest:
                body, json_size = to_http(request)
                found = parse_request(body, str(json_size), None)
                return with_bytes(found, deployment.preprocessing)

            asked = await service.machinery.decoders.submit(parsed, started_ms)
            allowance.add_requests(len(asked) - 1)
        except Exception as error:
            allowance.close()
            service.pipeline.refused(request_id, started_ms, None, error)
            raise
        try:
            answer = await infer(service.pipeline, asked, request_id, started_ms, client)
        finally:
            allowance.close()
        return from_http(*encode_answer(asked, answer, request_id))


def _address(peer: str) -> str:
    """`ipv4:127.0.0.1:1234` -> `127.0.0.1`."""
    kind, _, rest = peer.partition(":")
    if kind == "unix":
        return "127.0.0.1"
    return rest.rpartition(":")[0].strip("[]").replace("%5B", "").replace("%5D", "")
