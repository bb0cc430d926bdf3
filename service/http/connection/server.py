"""uvicorn with our protocol and our signals: SIGTERM drains, SIGHUP swaps the bundle."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from service.http.connection.connections import Connections, affordable_connections
from service.http.connection.protocol import bounded_protocol
from service.serving.service import Service
from service.settings import Settings

logger = logging.getLogger(__name__)

_STDERR = 2


def server_options(settings: Settings) -> dict[str, Any]:
    """How uvicorn is set up here, apart from the application and its protocol."""
    return {
        "host": settings.host,
        "port": settings.port,
        "workers": settings.workers,
        "loop": "uvloop",
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        # `request.client` reads the proxies' headers itself, and knows which of them to believe.
        "proxy_headers": False,
        # Whole seconds, and none of them would mean none at all.
        "timeout_keep_alive": math.ceil(settings.keep_alive_s),
        "timeout_graceful_shutdown": math.ceil(settings.drain_timeout_s),
        "backlog": 2048,
    }


def make_protocol(settings: Settings) -> type[asyncio.Protocol]:
    """What speaks HTTP here: uvicorn's protocol within our limits."""
    connections = Connections(
        affordable_connections(settings.max_connections), settings.trusted_proxies
    )
    return bounded_protocol(settings.receive_timeout_s, connections)


def server_config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """The configuration of a server in this process."""
    return uvicorn.Config(app, http=make_protocol(settings), **server_options(settings))


class Server(uvicorn.Server):
    """Drains before it exits."""

    def __init__(self, config: uvicorn.Config, service: Service, grace_s: float = 0.0) -> None:
        super().__init__(config)
        self._service = service
        self._grace_s = grace_s
        self._leaving = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_terminal = os.isatty(_STDERR)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: readiness goes false at once, then drain. Second: leave now."""
        if self._leaving:
            super().handle_exit(sig, frame)
            return
        self._leaving = True
        # Exit code 0: an orderly stop is what the operator asked for, so no signal is raised again.
        self._service.leaving = True
        loop = self._loop
        if loop is None:  # nothing has begun yet
            self.should_exit = True
        else:
            loop.call_soon_threadsafe(lambda: loop.call_later(self._grace_s, self._leave))

    def _leave(self) -> None:
        self._service.drain()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and take SIGHUP where signals can be taken: first, for starting takes long."""
        loop = self._loop = asyncio.get_running_loop()
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
            loop.add_signal_handler(signal.SIGHUP, self._reload)
        await super().startup(sockets)

    def _reload(self) -> None:
        if self._on_terminal and not os.isatty(_STDERR):
            # The terminal was closed: nobody could stop a service that stays behind.
            self.handle_exit(signal.SIGHUP, None)
            return
        logger.info("SIGHUP: reading the bundle again")
        task = asyncio.get_running_loop().create_task(self._service.reload())
        task.add_done_callback(_ignore)


def _ignore(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # logged where it happened
