"""Several processes on one port: starts them, passes signals on, replaces those that die.

Workers are forked before anything has threads, with everything imported. Each has a listening
socket of its own on the same port (SO_REUSEPORT): the kernel shares out the connections, and those
of a worker that is not there go to the others.
"""

from __future__ import annotations

import gc
import logging
import mmap
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from service.processes.crew import Crew
from service.processes.merging import forget_gauges

logger = logging.getLogger(__name__)

Work = Callable[[Crew, socket.socket], int]

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_SHORT_LIFE_S = 10.0
_LONGEST_PAUSE_S = 30.0


def listener(host: str, port: int) -> socket.socket:
    """A socket bound to a port that others may be bound to as well."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((host, port))
    return made


class Supervisor:
    """Runs `work` in `size` processes until told to stop."""

    def __init__(self, host: str, port: int, size: int, work: Work) -> None:
        self._host = host
        self._size = size
        self._work = work
        self._pid = os.getpid()
        self._bound = listener(host, port)  # never listens: it keeps the port
        self._port: int = self._bound.getsockname()[1]
        self._directory = Path(tempfile.mkdtemp(prefix="san-serve-"))
        self._ready = mmap.mmap(-1, size)
        self._life = os.pipe()
        self._workers: dict[int, int] = {}
        """Index by process id."""
        self._began = [0.0] * size
        self._pauses = [0.0] * size
        self._due: dict[int, float] = {}
        """When to start a worker again, by index."""
        self._stopping = False
        self._code = 0

    def run(self) -> int:
        """Supervise; returns an exit code, in a worker as well as in the supervisor."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        # What is loaded is shared with the workers for as long as nobody writes to it.
        gc.collect()
        gc.freeze()
        try:
            logger.info("%d workers on http://%s:%d", self._size, self._host, self._port)
            for index in range(self._size):
                self._start(index, successor=False)
            while self._workers or self._due:
                self._wait()
            return self._code
        finally:
            if os.getpid() == self._pid:
                shutil.rmtree(self._directory, ignore_errors=True)

    def _wait(self) -> None:
        """One signal, or one moment when a worker is due."""
        pause = min(self._due.values(), default=time.monotonic() + 60) - time.monotonic()
        came = signal.sigtimedwait(_SIGNALS, max(0.0, pause))
        number = came.si_signo if came else None
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop()
        elif number == signal.SIGHUP:
            self._tell(signal.SIGHUP)
        self._reap()
        for index in [i for i, due in self._due.items() if due <= time.monotonic()]:
            del self._due[index]
            self._start(index, successor=True)

    def _start(self, index: int, *, successor: bool) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._began[index] = time.monotonic()
        pid = os.fork()
        if pid:
            self._workers[pid] = index
            return
        # Signals of the terminal reach the supervisor alone, which passes them on.
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.close(self._life[1])
        self._bound.close()
        crew = Crew(index, self._size, self._directory, successor, self._ready, self._life[0])
        sys.exit(self._work(crew, listener(self._host, self._port)))

    def _stop(self) -> None:
        self._stopping = True
        self._due.clear()
        self._tell(signal.SIGTERM)

    def _tell(self, number: signal.Signals) -> None:
        for pid in self._workers:
            os.kill(pid, number)

    def _reap(self) -> None:
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if pid in self._workers:
                self._ended(pid, self._workers.pop(pid), os.waitstatus_to_exitcode(status))

    def _ended(self, pid: int, index: int, code: int) -> None:
        forget_gauges(self._directory, pid)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        if self._stopping:
            # One that was told to leave before it could listen to signals has left as well.
            if code not in (0, -signal.SIGTERM) and not self._code:
                logger.error("worker %d (%d) %s", index, pid, how)
                self._code = max(code, 1)
            return
        if code > 0 and not all(self._ready[:]):
            # It has said why; another would say the same.
            self._code = code
            self._stop()
            return
        short = time.monotonic() - self._began[index] < _SHORT_LIFE_S
        pause = min(_LONGEST_PAUSE_S, 2 * self._pauses[index] or 0.5) if short else 0.0
        self._pauses[index] = pause
        self._due[index] = time.monotonic() + pause
        logger.error("worker %d (%d) %s; starting another in %.1f s", index, pid, how, pause)
