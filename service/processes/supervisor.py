"""Several processes on one port, by uvicorn's own supervisor.

It binds the port, starts the workers, and replaces one that dies or hangs. On SIGHUP it starts a new
worker for each old one, with the bundle as it is by then, and retires the old one once the new one
is ready.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from service.processes.relay import Relay

logger = logging.getLogger(__name__)

READY_WITHIN_S = 120
"""How long a worker may take to become ready, or to answer its supervisor. A first start measures
the host and takes seconds; two cores that others use as well take longer."""

Configure = Callable[[], uvicorn.Config]
"""Makes a worker's configuration, in the worker."""


class _WorkerConfig(uvicorn.Config):
    """A configuration that another process can receive: it makes the real one when it is loaded."""

    def __init__(self, configure: Configure, workers: int, directory: Path) -> None:
        super().__init__(
            "", workers=workers, log_config=None, timeout_worker_healthcheck=READY_WITHIN_S
        )
        self._configure = configure
        self._directory = directory

    def load(self) -> None:
        """In the worker, before it serves."""
        real = self._configure()
        vars(self).update(
            {name: value for name, value in vars(real).items() if name != "workers"},
        )
        app: ASGIApp = real.app  # type: ignore[assignment]
        self.app = _Related(app, self._directory)
        super().load()


class _Related:
    """A worker's application with the relay around it, open for as long as the lifespan."""

    def __init__(self, app: ASGIApp, directory: Path) -> None:
        self._relay = Relay(app, directory)
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._relay(scope, receive, send)
            return
        await self._relay.open()
        try:
            await self._app(scope, receive, send)
        finally:
            await self._relay.close()


def supervise(configure: Configure, host: str, port: int, workers: int) -> int:
    """Serve with `workers` processes until told to stop; returns the exit code."""
    directory = Path(tempfile.mkdtemp(prefix="san-serve-"))
    try:
        config = _WorkerConfig(configure, workers, directory)
        config.host, config.port = host, port
        listener = config.bind_socket()
        logger.info("%d workers on http://%s:%d", workers, host, listener.getsockname()[1])
        supervisor = Multiprocess(config, [listener])
        supervisor.run()
        failed = any(p.exitcode == STARTUP_FAILURE for p in supervisor.processes)
        return STARTUP_FAILURE if failed else os.EX_OK
    finally:
        shutil.rmtree(directory, ignore_errors=True)
