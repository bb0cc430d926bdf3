"""The only place where parts are put together."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib import metadata

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from san_core.errors import SanError
from service.engines.choice import choose_engine, wants_gpu
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
from service.images.decoder import DecodeLimits, Decoder
from service.images.helper_pool import HelperPool
from service.observability.ledger import Ledger
from service.observability.logs import log_request
from service.observability.tracing import make_trace
from service.replay.recording import Recorder
from service.request.client import ClientIdentity, is_loopback
from service.runtime.clock import Clock, monotonic_ms
from service.runtime.cores import available_cores, plan_cores
from service.runtime.thread_pool import Workers
from service.scheduling.admission import Admission
from service.scheduling.pricing import Host
from service.scheduling.schedule import Schedule
from service.serving.answers import AnswerCache
from service.serving.bundles.deployment import EngineChoice, Machinery
from service.serving.bundles.swapping import Bundles
from service.serving.choosing import Limits
from service.serving.observing import Observer
from service.serving.pipeline import Pipeline
from service.serving.quality.agreement import Agreement
from service.serving.quality.feedback import FeedbackStore
from service.serving.quality.rerun import make_rerun
from service.serving.quality.rollout import Parts, Rollout
from service.serving.quality.verdict import Bounds
from service.serving.service import Service
from service.serving.tasks import Tasks
from service.serving.warm_up import warm_up
from service.settings import MEGA, Settings

logger = logging.getLogger(__name__)


_GPU_BATCH = 64
"""The largest batch on a GPU unless set: there a batch costs far less than its images."""
_NICE = 3
"""Of every thread that computes: the event loop goes before them, with twice their share of a core
that it needs. It hands out all work and refuses requests; behind busy decoders and engines
a flood would starve it. All the same, as the threads of a network are as nice as its builder. The
engine's own thread is not nice: it hands batches to the network's threads, and while it waits for a
core they rest."""
NICE_DECODING = 15
"""Of what decodes for long: large JPEGs and helpers. At 5 it took nearly as much of a core as the
network's threads, so that ordinary requests beside it took three times as long."""


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
        engine_thread=Workers("engine", 1),
        decoders=Workers("decode", plan.decode, nice=_NICE),
        large_decoder=Workers("large", 1, nice=NICE_DECODING),
        loader=Workers("load", 1, nice=_NICE),
        builders=Workers("build", 1, nice=_NICE),
    )
    return assembled(machinery, lambda bundle: choose_engine(settings, bundle))


def assembled(machinery: Machinery, choose: EngineChoice) -> Service:
    """A service of these threads."""
    settings, clock, ledger = machinery.settings, machinery.clock, machinery.ledger
    admission = Admission(
        max_requests=settings.max_inflight, max_bytes=settings.max_inflight_megabytes * MEGA
    )
    most = DecodeLimits(
        settings.formats,
        settings.max_pixels,
        settings.max_decode_ms,
        settings.max_decode_megabytes * MEGA,
    )
    helpers = HelperPool(
        settings.decode_helpers or max(2, available_cores() // settings.workers // 2),
        memory_bytes=most.max_bytes,
        formats=most.formats,
        max_pixels=most.max_pixels,
        nice=NICE_DECODING,
        clock=clock,
    )
    decoder = Decoder(machinery.decoders, machinery.large_decoder, helpers, clock, most)
    limits = Limits(settings.patience_ms, settings.max_resolution)
    tasks = Tasks()
    bundles = Bundles(
        machinery,
        choose,
        admission,
        tasks,
        lambda deployment: warm_up(deployment, machinery, decoder, limits),
    )
    rerun = make_rerun(decoder, clock)
    rollout = Rollout(
        Parts(bundles.make, bundles.install, bundles.retire, lambda: bundles.serving),
        rerun,
        decoder,
        admission,
        ledger,
        clock,
        fraction=settings.candidate_fraction,
        bounds=Bounds(agreement=settings.candidate_agreement),
        watch_ms=1000 * settings.rollback_s,
    )
    agreement = Agreement(
        lambda: bundles.serving, rerun, admission, ledger, settings.agreement_fraction
    )
    feedback = FeedbackStore(settings.feedback_entries)
    observer = Observer(
        ledger,
        feedback,
        agreement,
        rollout,
        Recorder(settings.record) if settings.record is not None else None,
        [
            tell
            for tell in (log_request if settings.access_log else None, make_trace(clock))
            if tell is not None
        ],
    )
    answers = None
    if settings.answer_cache_megabytes:
        answers = AnswerCache(
            settings.answer_cache_megabytes * MEGA,
            settings.answer_cache_ttl_s,
            lambda: clock() / 1000,
        )
    pipeline = Pipeline(
        admission,
        machinery.schedule,
        decoder,
        clock,
        limits,
        observer,
        rollout.deployment_for,
        answers,
    )
    return Service(
        machinery,
        admission=admission,
        helpers=helpers,
        tasks=tasks,
        bundles=bundles,
        rollout=rollout,
        agreement=agreement,
        feedback=feedback,
        answers=answers,
        observer=observer,
        pipeline=pipeline,
    )


def _clients(keys: Keys, settings: Settings) -> ClientIdentity:
    return ClientIdentity(keyed=keys.keyed, trusted_proxies=settings.trusted_proxies)


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
    keys = Keys(settings)
    server = GrpcServer(
        service, keys, _clients(keys, settings), limits, settings.host, settings.grpc_port
    )
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
    endpoint = ClassifyEndpoint(service.pipeline, limits, settings)
    api = make_api(service, endpoint, limits, ready_first=ready_first)

    keys = Keys(settings)
    clients = _clients(keys, settings)
    app: ASGIApp = FastPath(api, {("POST", "/classify"): endpoint})
    app = Authentication(
        app, keys, clients, RouteTable(api.routes), partial(note_refusal, service.pipeline)
    )
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
    return RequestId(app, service.clock, api)
