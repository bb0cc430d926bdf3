"""Several processes on one port, by uvicorn's own supervisor.

It binds the port, starts the workers, and replaces one that dies or hangs. On SIGHUP it starts a
new worker for each old one, with the bundle as it is by then, and retires the old one once the new
one is ready.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from service.processes.workers import WorkerRelay

logger = logging.getLogger(__name__)

READY_WITHIN_S = 120
"""How long a worker may take to become ready, or to answer its supervisor. A first start measures
the host and takes seconds; two cores that others use as well take longer."""

MakeWorker = Callable[[], tuple[ASGIApp, type[asyncio.Protocol]]]
"""Makes a worker's application and its HTTP protocol, in the worker."""

_PR_SET_PDEATHSIG = 1


class _WorkerConfig(uvicorn.Config):
    """A configuration that another process can receive: it makes the real one when it is loaded."""

    def __init__(self, make: MakeWorker, directory: Path, **options: Any) -> None:
        super().__init__("", timeout_worker_healthcheck=READY_WITHIN_S, **options)
        self._make = make
        self._directory = directory

    def load(self) -> None:
        """In the worker, before it serves."""
        _leave_with_parent()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor's to act on
        app, self.http = self._make()
        self.app = WorkerRelay(app, self._directory)
        super().load()


class _Supervisor(Multiprocess):
    """Notices at once that a worker ended.

    uvicorn keeps the worker's end of their pipe open in the supervisor too, so that a question to a
    dead worker ends with the time limit instead of the pipe.
    """

    def keep_subprocess_alive(self) -> None:
        """Replace workers that ended or hang."""
        for process in self.processes:
            process.child_conn.close()
        super().keep_subprocess_alive()


def _leave_with_parent() -> None:
    """Have the kernel send SIGTERM when the supervisor is gone, even if it was killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def supervise(make: MakeWorker, **options: Any) -> int:
    """Serve with several processes until told to stop; returns the exit code.

    `options` are uvicorn's; `workers` is among them.
    """
    directory = Path(tempfile.mkdtemp(prefix="san-serve-"))
    try:
        config = _WorkerConfig(make, directory, **options)
        listener = config.bind_socket()
        host, port = listener.getsockname()[:2]
        logger.info("%d workers on http://%s:%d", config.workers, host, port)
        supervisor = _Supervisor(config, [listener])
        supervisor.run()
        failed = any(p.exitcode == STARTUP_FAILURE for p in supervisor.processes)
        return STARTUP_FAILURE if failed else os.EX_OK
    finally:
        shutil.rmtree(directory, ignore_errors=True)
