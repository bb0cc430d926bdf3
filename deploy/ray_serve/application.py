"""A replica is a whole service: it loads the bundle, measures its host and serves its own frontier.

A budget counts from the first byte, and Ray's proxy sees that byte, not the replica: the proxy
stamps each request (`proxy`), and the replica counts the time between as spent.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from pydantic import BaseModel, Field
from ray import serve
from ray.serve import Application
from ray.serve import metrics as ray_metrics
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deploy.ray_serve.peers import PostOffice, RayPeers
from deploy.ray_serve.proxy import RECEIVED, REPLICA
from deploy.ray_serve.replica_metrics import ReplicaMetrics, Toll

FIRST_BYTE = "san.first_byte_ms"
_LONGEST_S = 60.0
_POLL_S = 0.1


class Options(BaseModel, extra="forbid"):
    """What an application is built with: `args` in a Serve file, `name=value` after `serve run`."""

    cores: float = Field(1, gt=0, description="cores of a replica")
    gpus: float = Field(0, ge=0, description="GPUs of a replica")
    min_replicas: int = Field(1, ge=1)
    max_replicas: int = Field(100, ge=1)
    upscale_delay_s: float = Field(10, ge=0)
    downscale_delay_s: float = Field(300, ge=0)
    router: str = Field(
        "deploy.ray_serve.router:HeadroomRouter", description="Ray's request router class"
    )
    settings: dict[str, str] = Field(
        default_factory=dict, description="SAN_* variables of the replicas, e.g. SAN_BUNDLE"
    )


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


class InReplica:
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


@serve.deployment(
    name="san-serve",
    # More than a replica can carry is refused by the service, with a reason; not queued by Ray.
    max_ongoing_requests=256,
    graceful_shutdown_timeout_s=40,
    health_check_period_s=5,
)
@serve.ingress()
class Replica:
    """One replica."""

    def __init__(self, cores: float, office: DeploymentHandle) -> None:
        self._cores = max(1, int(cores))
        self._office = office

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Make the application; Ray calls this on the replica's event loop."""
        from service.app import make_app, make_service
        from service.observability.logs import configure
        from service.processes.relay import Relay
        from service.settings import Settings

        # What Ray gave the replica, not the machine, is what there is to share out.
        threads = {"engine_threads": self._cores, "decode_threads": max(1, self._cores // 4)}
        settings = Settings(
            **{n: v for n, v in threads.items() if f"SAN_{n.upper()}" not in os.environ}
        )
        configure(settings.log_level, settings.log_format)
        name = serve.get_replica_context().replica_id.unique_id
        self.service = make_service(settings)
        self.metrics = ReplicaMetrics(ray_metrics)
        self.metrics.follow(self.service.ledger)
        self.toll = Toll(self.service.ledger)
        app = Relay(make_app(settings, self.service), RayPeers(self._office, name))
        return InReplica(app, self.service, name)

    def check_health(self) -> None:
        """Ray asks every few seconds; a replica that cannot serve its bundle is replaced."""
        service = self.service
        if service.failure:
            raise RuntimeError(service.failure)
        self.metrics.look(ready=service.is_ready, inside=service.admission.inside)

    def record_routing_stats(self) -> dict[str, str]:
        """For the router, until the replica's answers tell."""
        headroom = self.service.headroom()
        return {} if headroom is None else {"headroom": headroom.header().decode()}

    def record_autoscaling_stats(self) -> dict[str, float]:
        """For the autoscaler: what clients lost since it last asked, and how busy the engine is."""
        return self.toll.since_last(self.service.clock())


def build(args: dict[str, Any]) -> Application:
    """The application with `Options`; `SAN_*` variables of this shell go to the replicas, too."""
    options = Options.model_validate(args)
    shell = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("SAN_") and not name.startswith("SAN_RAY_")
    }
    replica = Replica.options(
        ray_actor_options={
            "num_cpus": options.cores,
            "num_gpus": options.gpus,
            "runtime_env": {"env_vars": shell | options.settings},
        },
        autoscaling_config=AutoscalingConfig(
            min_replicas=options.min_replicas,
            max_replicas=options.max_replicas,
            upscale_delay_s=options.upscale_delay_s,
            downscale_delay_s=options.downscale_delay_s,
            policy=AutoscalingPolicy(policy_function="deploy.ray_serve.autoscaling:by_promises"),
        ),
        request_router_config=RequestRouterConfig(
            request_router_class=options.router, request_routing_stats_period_s=1
        ),
    )
    office = serve.deployment(
        PostOffice, name="post-office", num_replicas=1, max_ongoing_requests=1000,
        ray_actor_options={"num_cpus": 0},
    )  # fmt: skip
    return replica.bind(options.cores, office.bind())
