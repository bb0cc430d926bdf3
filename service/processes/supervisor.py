"""Several processes on one port, by uvicorn's own supervisor.

It binds the port, starts the workers, and replaces one that dies or hangs. On SIGHUP it starts a
new worker for each old one, with the bundle as it is by then, and retires the old one once the new
one is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from service.processes.workers import WorkerRelay

logger = logging.getLogger(__name__)

READY_WITHIN_S = 120
"""How long a worker may take to become ready, or to answer its supervisor. A first start measures
the host and takes seconds; two cores that others use as well take longer."""

SILENT_S = 15.0
"""A worker answers from a thread of its own, whatever it works at; one that is silent for so long
hangs, or was stopped."""
LEAVES_WITHIN_S = 10.0
"""How much longer than its requests a worker may take to leave."""

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
    """Notices at once that a worker ended, soon that it hangs, and waits for none without end.

    uvicorn waits for a worker that does not answer before it looks at a signal, and without end for
    one that does not leave. It also keeps the worker's end of their pipe open in the supervisor, so
    that a question to a dead worker ends with the time limit instead of the pipe.
    """

    def __init__(
        self, config: uvicorn.Config, sockets: list[socket.socket], room: Callable[[], int | None]
    ) -> None:
        super().__init__(config, sockets)
        self.should_exit = _Nap(lambda: [process.process for process in self.processes])
        self._room = room
        self._heard: dict[int, float] = {}
        """When each worker answered last."""

    def keep_subprocess_alive(self) -> None:
        """Replace workers that ended or hang."""
        for process in self.processes:
            process.child_conn.close()
            if process.process.is_alive() and self._hangs(process):
                logger.error("worker %s does not answer and is killed", process.pid)
                process.process.kill()  # it cannot leave by itself
                process.process.join()
        ended = [p.process for p in self.processes if not p.process.is_alive()]
        if not ended or self.should_exit.is_set():
            return
        for worker in ended:
            if worker.exitcode != STARTUP_FAILURE:
                how = _ending(worker.exitcode or 0)
                logger.error("worker %s ended (%s) and is replaced", worker.pid, how)
        super().keep_subprocess_alive()

    def _hangs(self, process: Process) -> bool:
        """Whether a worker has been silent for long; asks without waiting."""
        pid, pipe, now = process.process.pid or 0, process.parent_conn, time.monotonic()
        with contextlib.suppress(OSError, EOFError):
            while pipe.poll():
                pipe.recv()
                self._heard[pid] = now
            pipe.send(b"ping")
        # One that starts answers when it has loaded its libraries.
        return now - self._heard.setdefault(pid, now + READY_WITHIN_S) > SILENT_S

    def join_all(self) -> None:
        """Wait for the workers to drain; end those that do not leave."""
        deadline = time.monotonic() + LEAVES_WITHIN_S + (self.config.timeout_graceful_shutdown or 0)
        for process in self.processes:
            process.process.join(max(0.0, deadline - time.monotonic()))
            if process.process.is_alive():
                logger.error("worker %s does not leave and is ended", process.pid)
                process.process.kill()
                process.process.join()

    def restart_all(self) -> None:
        """Replace the workers one by one, if there is memory for one more."""
        room = self._room()
        needed = max((_resident_bytes(process.pid) for process in self.processes), default=0)
        if room is not None and room < needed:
            logger.error(
                "the workers are not replaced: one more takes about %d MB, and %d MB are left of "
                "this container's limit; POST /admin/reload swaps within each, or raise the limit",
                needed // 1_000_000,
                room // 1_000_000,
            )
            return
        super().restart_all()


class _Nap(threading.Event):
    """Waits as an event does, but no longer than until a process ends."""

    def __init__(self, processes: Callable[[], list[BaseProcess]]) -> None:
        super().__init__()
        self._processes = processes

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it is set by then, or by the time that a process has ended."""
        if not self.is_set():
            wait([process.sentinel for process in self._processes()], timeout)
        return self.is_set()


def _ending(code: int) -> str:
    """An exit code as people know it: what the signal is called, or the number."""
    return (signal.strsignal(-code) if code < 0 else None) or f"code {code}"


def _resident_bytes(pid: int | None) -> int:
    """Memory of a process that no other shares."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


def _leave_with_parent() -> None:
    """Have the kernel send SIGTERM when the supervisor is gone, even if it was killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def supervise(make: MakeWorker, room: Callable[[], int | None], **options: Any) -> int:
    """Serve with several processes until told to stop; returns the exit code.

    `room` tells how many bytes can still be taken, None: no limit. `options` are uvicorn's;
    `workers` is among them.
    """
    directory = Path(tempfile.mkdtemp(prefix="san-serve-"))
    try:
        config = _WorkerConfig(make, directory, **options)
        listener = config.bind_socket()
        host, port = listener.getsockname()[:2]
        logger.info("%d workers on http://%s:%d", config.workers, host, port)
        supervisor = _Supervisor(config, [listener], room)
        supervisor.run()
        failed = any(p.exitcode == STARTUP_FAILURE for p in supervisor.processes)
        return STARTUP_FAILURE if failed else os.EX_OK
    finally:
        shutil.rmtree(directory, ignore_errors=True)
