"""The same service on many machines: the FastAPI application as a Ray Serve deployment.

    pip install 'san-serve' 'ray[serve]'
    RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=deploy.ray_serve:proxy_middlewares \
        serve run deploy.ray_serve:application

Every replica is a whole service: it loads the bundle, measures the host it landed on, and serves
its own frontier. Settings are the usual `SAN_*` variables. Replicas are scaled on ongoing requests.

A budget counts from the first byte, and Ray's proxy sees that byte, not the replica. So the proxy
stamps each request (that is what the variable above switches on), and the replica counts the time
between as spent. Without the stamp a budget begins when the request reaches the replica.

Each replica tells Ray's own metrics of every request (`deploy/replica_metrics.py`).

`make test-ray` runs it with one and with two replicas on this machine, and kills one under load.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

from ray import serve
from ray.serve import metrics as ray_metrics
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

RECEIVED = b"x-san-received"
REPLICA = b"x-san-replica"
FIRST_BYTE = "san.first_byte_ms"
_LONGEST_S = 60.0
_POLL_S = 0.1


def _cores() -> float:
    return float(os.environ.get("SAN_RAY_CORES", "1"))


class Stamp:
    """In Ray's proxy: note when a request arrived, whatever the client claims."""

    def __init__(self, app: ASGIApp, now: Callable[[], float] = time.time) -> None:
        self._app = app
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "http":
            headers = [pair for pair in scope["headers"] if pair[0] != RECEIVED]
            scope = {**scope, "headers": [*headers, (RECEIVED, b"%.6f" % self._now())]}
        await self._app(scope, receive, send)


def proxy_middlewares() -> list[Middleware]:
    """What Ray's proxy is to run (RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH)."""
    return [Middleware(Stamp)]


def spent_ms(headers: list[tuple[bytes, bytes]], now: float) -> float:
    """Time since the proxy saw the request; 0 where that cannot be known.

    Wall clocks of two machines may differ: what would be negative or absurd counts as nothing.
    """
    for name, value in headers:
        if name == RECEIVED:
            try:
                spent = now - float(value)
            except ValueError:
                return 0.0
            return 1000 * spent if 0 <= spent <= _LONGEST_S else 0.0
    return 0.0


class Replica:
    """The application in a replica.

    The clock of a request starts when the proxy saw it, and Ray sends no request before the host
    was measured: starting up is complete when the service is ready.
    """

    def __init__(self, app: ASGIApp, service: Any, name: str) -> None:
        self._app = app
        self._service = service
        self._name = name.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, self._when_ready(send))
            return
        spent = spent_ms(scope["headers"], time.time())
        scope = {**scope, FIRST_BYTE: self._service.clock() - spent}

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (REPLICA, self._name)]
            await send(message)

        await self._app(scope, receive, named)

    def _when_ready(self, send: Send) -> Send:
        async def later(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                while not (self._service.is_ready or self._service.failure):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
                if self._service.failure:
                    message = {"type": "lifespan.startup.failed", "message": self._service.failure}
            await send(message)

        return later


def build_app() -> ASGIApp:
    """Make the application; Ray calls this in each replica, on the replica's event loop."""
    from deploy.replica_metrics import ReplicaMetrics
    from service.app import make_app, make_service
    from service.observability.logs import configure
    from service.settings import Settings

    cores = max(1, int(_cores()))
    # What Ray gave the replica, not the machine, is what there is to share out.
    settings = Settings(
        **{
            name: value
            for name, value in (("engine_threads", cores), ("decode_threads", max(1, cores // 4)))
            if f"SAN_{name.upper()}" not in os.environ
        }
    )
    configure(settings.log_level, settings.log_format)
    service = make_service(settings)
    metrics = ReplicaMetrics(ray_metrics)
    metrics.follow(service.ledger)
    SanServe.service, SanServe.metrics = service, metrics
    name = serve.get_replica_context().replica_id.unique_id
    return Replica(make_app(settings, service), service, name)


@serve.deployment(
    name="san-serve",
    # More than a replica can carry is refused by the service, with a reason; not queued by Ray.
    max_ongoing_requests=256,
    graceful_shutdown_timeout_s=40,
    health_check_period_s=5,
    ray_actor_options={"num_cpus": _cores()},
    autoscaling_config={
        "min_replicas": int(os.environ.get("SAN_RAY_MIN_REPLICAS", "1")),
        "max_replicas": int(os.environ.get("SAN_RAY_MAX_REPLICAS", "20")),
        "target_ongoing_requests": float(os.environ.get("SAN_RAY_TARGET_REQUESTS", "8")),
        "upscale_delay_s": 10,
        "downscale_delay_s": 300,
    },
)
@serve.ingress(build_app)
class SanServe:
    """A replica."""

    service: Any = None
    metrics: Any = None

    def check_health(self) -> None:
        """Ray asks every few seconds; a replica that cannot serve its bundle is replaced."""
        service = self.service
        if service is None:
            return
        if service.failure:
            raise RuntimeError(service.failure)
        self.metrics.look(ready=service.is_ready, inside=service.admission.inside)


application = SanServe.bind()
