"""The only place where parts are put together."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Scope

from san_core.bundle import Bundle
from san_core.errors import SanError
from service.engines.base import Engine
from service.errors import EngineUnavailableError
from service.http.access.auth import Authentication, Keys
from service.http.access.limits import ClientLimits
from service.http.access.origin import OriginCheck
from service.http.access.route_facts import RouteTable
from service.http.exporter import Exporter
from service.http.middleware import FastPath, Problems, RequestId, TrailingSlash
from service.http.openapi import Api
from service.http.routes.candidate import candidate_router
from service.http.routes.classify import (
    ClassifyEndpoint,
    classify_router,
    note_refusal,
)
from service.http.routes.console import add_console
from service.http.routes.feedback import feedback_router
from service.http.routes.headroom import LoadReport, headroom_router
from service.http.routes.health import health_router
from service.http.routes.metrics import metrics_router
from service.http.routes.open_inference import open_inference_router
from service.http.routes.plan import plan_router
from service.http.routes.resolutions import resolutions_router
from service.observability.ledger import Ledger
from service.request.client import ClientIdentity, is_loopback
from service.runtime.clock import Clock, monotonic_ms
from service.runtime.cores import available_cores, plan_cores
from service.runtime.thread_pool import Workers
from service.scheduling.pricing import Host
from service.scheduling.schedule import Schedule
from service.serving.bundles.deployment import Machinery
from service.serving.service import Service
from service.settings import MEGA, Settings

logger = logging.getLogger(__name__)


_GPU_BATCH = 64
"""The largest batch on a GPU unless set: there a batch costs far less than its images."""
_GPU_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")
"""What a driver shows where there is a GPU: NVIDIA's, Windows' for Linux, AMD's."""

_NICE = 3
"""Of every thread that computes: the event loop goes before them, with twice their share of a core
that it needs. It hands out all work and refuses what is too much; behind full decoders and engines
a flood would starve it. All the same, as the threads of a network are as nice as its builder."""


def wants_gpu(settings: Settings) -> bool:
    """Whether a GPU is to be used: it is named, or there is one and nothing speaks against it."""
    if settings.device == "auto":
        if settings.engine == "openvino" or not any(map(os.path.exists, _GPU_DEVICES)):
            return False  # and torch, which takes seconds to import, is not asked
        return _torch_sees_gpu()
    return settings.device.startswith("cuda")


def _torch_sees_gpu() -> bool:
    """Whether torch can use the GPU that is there; warns of the reason if not."""
    try:
        from service.engines.torch_engine import resolve_device

        if resolve_device("auto").type != "cuda":
            resolve_device("cuda")  # raises, with the reason
    except (ImportError, EngineUnavailableError) as error:
        logger.warning("there is a GPU, but the CPU serves: %s", error)
        return False
    return True


def choose_engine(settings: Settings, bundle: Bundle) -> Engine:
    """OpenVINO where it works and nothing else was asked for; torch elsewhere, and on a GPU."""
    cores = max(1, available_cores() // settings.workers)

    def threads(engine: str) -> int:
        return plan_cores(cores, engine, engine_threads=settings.engine_threads).engine

    gpu = wants_gpu(settings)
    if settings.engine != "torch" and not gpu:
        try:
            module = importlib.import_module("service.engines.openvino.engine")
            engine: Engine = module.OpenVinoEngine(
                bundle,
                threads=threads("openvino"),
                max_batch=settings.max_batch,
                device="cpu",
                bf16=settings.bf16,
                cache_dir=settings.cache_dir,
            )
            return engine
        except (ImportError, EngineUnavailableError) as error:
            if settings.engine == "openvino":
                raise EngineUnavailableError(
                    f"The OpenVINO engine cannot run here: {error}"
                ) from error
            logger.info("OpenVINO cannot run here (%s); taking torch", error)
    try:
        if gpu:
            return _on_gpu(settings, bundle)
        from service.engines.torch_engine import TorchEngine
    except ImportError as error:
        raise EngineUnavailableError(
            f"The torch engine cannot run here: {error}. pip install 'san-serve[torch]'"
        ) from error
    return TorchEngine(bundle, threads=threads("torch"), max_batch=settings.max_batch, device="cpu")


def _on_gpu(settings: Settings, bundle: Bundle) -> Engine:
    """CUDA graphs; on the CPU if the GPU was not named and cannot be used: full, or broken."""
    from service.engines.cuda.engine import CudaEngine

    try:
        return CudaEngine(bundle, threads=1, max_batch=settings.max_batch, device=settings.device)
    except (RuntimeError, SanError) as error:
        if settings.device != "auto":
            raise
        logger.warning("the GPU cannot be used (%s); running on the CPU", error)
        return choose_engine(settings.model_copy(update={"device": "cpu"}), bundle)


def make_service(settings: Settings, clock: Clock = monotonic_ms) -> Service:
    """A service without a transport."""
    on_gpu = wants_gpu(settings)
    if not on_gpu:
        settings = settings.model_copy(update={"device": "cpu"})  # asked, and told why, once
    if on_gpu and "max_batch" not in settings.model_fields_set:
        settings = settings.model_copy(update={"max_batch": _GPU_BATCH})
    if on_gpu and settings.workers > 1:
        logger.warning(
            "%d workers share one GPU: each holds a meta network, graphs and a cache of its own",
            settings.workers,
        )
    cores = max(1, available_cores() // settings.workers)
    plan = plan_cores(
        cores,
        "gpu" if on_gpu else settings.engine,
        engine_threads=settings.engine_threads,
        decode_threads=settings.decode_threads,
    )
    machinery = Machinery(
        settings=settings,
        clock=clock,
        schedule=Schedule(plan.decode, settings.max_batch),
        host=Host(cores, plan.decode),
        ledger=Ledger(),
        engine_thread=Workers("engine", 1, nice=_NICE),
        decoders=Workers("decode", plan.decode, nice=_NICE),
        large_decoder=Workers("large", 1, nice=5),
        loader=Workers("load", 1, nice=_NICE),
        builders=Workers("build", 1, nice=_NICE),
    )
    return Service(machinery, lambda bundle: choose_engine(settings, bundle))


@asynccontextmanager
async def grpc_beside(service: Service, limits: ClientLimits) -> AsyncIterator[None]:
    """The gRPC server for as long as the service runs, if a port was named for it."""
    settings = service.settings
    if settings.grpc_port is None:
        yield
        return
    try:
        from service.grpc.server import GrpcServer
    except ModuleNotFoundError as error:
        raise SanError("gRPC needs its extra: pip install 'san-serve[grpc]'.") from error
    server = GrpcServer(service, Keys(settings), limits, settings.host, settings.grpc_port)
    await server.start()
    try:
        yield
    finally:
        await server.stop(settings.drain_grace_s)


def make_api(
    service: Service, endpoint: ClassifyEndpoint, limits: ClientLimits, *, ready_first: bool
) -> FastAPI:
    """The routes and their document."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        if ready_first:
            await service.until_ready()
        async with grpc_beside(service, limits):
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
    api.include_router(plan_router(service))
    api.include_router(feedback_router(service, limits))
    api.include_router(candidate_router(service))
    api.include_router(headroom_router(service))
    api.include_router(health_router(service))
    api.include_router(metrics_router(Exporter(service)))
    api.include_router(open_inference_router(service, limits))
    add_console(api)
    return api


def make_app(settings: Settings, service: Service, *, ready_first: bool = False) -> ASGIApp:
    """The whole application for a service.

    With `ready_first` the server begins to listen once the service is ready; without, liveness
    answers at once.
    """
    limits = ClientLimits(
        max_requests=settings.max_inflight,
        max_bytes=settings.max_inflight_megabytes * MEGA,
        share=settings.client_share,
    )
    endpoint = ClassifyEndpoint(
        service.pipeline,
        limits,
        max_bytes=settings.max_body_bytes,
        timeout_s=settings.receive_timeout_s,
    )
    api = make_api(service, endpoint, limits, ready_first=ready_first)

    def on_refused(scope: Scope, error: Exception) -> None:
        note_refusal(service.pipeline, scope, error)

    keys = Keys(settings)
    clients = ClientIdentity(keyed=keys.keyed, trusted_proxies=settings.trusted_proxies)
    app: ASGIApp = FastPath(api, {("POST", "/classify"): endpoint})
    app = Authentication(app, keys, clients, RouteTable(api.routes), on_refused)
    app = OriginCheck(
        app,
        allowed_origins=settings.cors_origins,
        local_only=not keys.keyed and is_loopback(settings.host),
    )
    app = LoadReport(Problems(TrailingSlash(app, "/v2/")), service.headroom)
    if settings.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=("*",),
        )
    return RequestId(app, service.clock)
