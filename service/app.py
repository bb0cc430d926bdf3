"""The only place where parts are put together."""

from __future__ import annotations

import importlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata

from fastapi import FastAPI
from starlette.types import ASGIApp, Scope

from san_core.bundle import Bundle
from service.engines.base import Engine
from service.engines.torch_engine import TorchEngine, resolve_device
from service.errors import EngineUnavailableError
from service.http.auth import Authentication, Keys
from service.http.exporter import Exporter
from service.http.middleware import FastPath, Problems, RequestId, TrailingSlash
from service.http.openapi import Api
from service.http.route_facts import RouteTable
from service.http.routes.classify import (
    ClassifyEndpoint,
    classify_router,
    note_refusal,
)
from service.http.routes.console import add_console
from service.http.routes.feedback import feedback_router
from service.http.routes.health import health_router
from service.http.routes.metrics import metrics_router
from service.http.routes.open_inference import open_inference_router
from service.http.routes.resolutions import resolutions_router
from service.observability.ledger import Ledger
from service.processes.crew import Crew
from service.request.client import ClientIdentity
from service.runtime.clock import Clock, monotonic_ms
from service.runtime.cores import available_cores, plan_cores
from service.runtime.thread_pool import Workers
from service.scheduling.load import Load
from service.serving.bundle_reader import BundleReader
from service.serving.deployment import Engines, Machinery
from service.serving.service import Service
from service.settings import Settings

logger = logging.getLogger(__name__)


def wants_gpu(settings: Settings) -> bool:
    """Whether a GPU is to be used: it is named, or there is one and nothing speaks against it."""
    if settings.device == "auto":
        return settings.engine != "openvino" and resolve_device("auto").type == "cuda"
    return settings.device.startswith("cuda")


def choose_engines(settings: Settings, bundle: Bundle) -> Engines:
    """OpenVINO where it works and nothing else was asked for, with torch as its stand-in.

    Torch alone everywhere else, and wherever there is a GPU.
    """
    cores = max(1, available_cores() // settings.workers)

    def threads(engine: str) -> int:
        return plan_cores(cores, engine, engine_threads=settings.engine_threads).engine

    if settings.engine != "torch" and not wants_gpu(settings):
        try:
            module = importlib.import_module("service.engines.openvino_engine")
            engine: Engine = module.OpenVinoEngine(
                bundle,
                threads=threads("openvino"),
                max_batch=settings.max_batch,
                device="cpu",
                bf16=settings.bf16,
                cache_dir=settings.cache_dir,
            )
            standin = TorchEngine(
                bundle, threads=threads("torch"), max_batch=settings.max_batch, device="cpu"
            )
            return Engines(engine, standin)
        except (ImportError, EngineUnavailableError) as error:
            if settings.engine == "openvino":
                raise EngineUnavailableError(
                    f"The OpenVINO engine cannot run here: {error}"
                ) from error
            logger.info("OpenVINO cannot run here (%s); taking torch", error)
    engine = TorchEngine(
        bundle, threads=threads("torch"), max_batch=settings.max_batch, device=settings.device
    )
    return Engines(engine, None)


def make_service(
    settings: Settings, clock: Clock = monotonic_ms, crew: Crew | None = None
) -> Service:
    """A service without a transport; must be made on a running event loop."""
    crew = crew or Crew()
    plan = plan_cores(
        max(1, available_cores() // settings.workers),
        settings.engine,
        engine_threads=settings.engine_threads,
        decode_threads=settings.decode_threads,
    )
    machinery = Machinery(
        settings=settings,
        clock=clock,
        load=Load(plan.decode),
        ledger=Ledger(),
        engine_thread=Workers("engine", 1),
        decoders=Workers("decode", plan.decode),
        loader=Workers("load", 1),
        builders=Workers("build", 1, nice=5),
        crew=crew,
        reader=BundleReader(crew.directory, resume=crew.successor),
    )
    return Service(machinery, lambda bundle: choose_engines(settings, bundle))


def make_api(service: Service, endpoint: ClassifyEndpoint) -> FastAPI:
    """The routes and their document."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    api = Api(
        title="san-serve",
        summary="Image classification within a latency budget.",
        version=metadata.version("san-serve"),
        lifespan=lifespan,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    api.exception_handlers.clear()  # every error goes on to `Problems`
    api.include_router(classify_router(endpoint))
    api.include_router(resolutions_router(service))
    api.include_router(feedback_router(service))
    api.include_router(health_router(service))
    api.include_router(metrics_router(Exporter(service)))
    api.include_router(open_inference_router(service))
    add_console(api)
    return api


def make_app(settings: Settings, service: Service) -> ASGIApp:
    """The whole application for a service."""
    endpoint = ClassifyEndpoint(
        service.pipeline,
        max_bytes=settings.max_body_bytes,
        timeout_s=settings.receive_timeout_s,
    )
    api = make_api(service, endpoint)

    def on_refused(scope: Scope, error: Exception) -> None:
        note_refusal(service.pipeline, scope, error)

    keys = Keys(settings)
    clients = ClientIdentity(keyed=keys.keyed, trusted_proxies=settings.trusted_proxies)
    app: ASGIApp = FastPath(api, {("POST", "/classify"): endpoint})
    app = Authentication(app, keys, clients, RouteTable(api.routes), on_refused)
    return RequestId(Problems(TrailingSlash(app, "/v2/")), service.clock)
