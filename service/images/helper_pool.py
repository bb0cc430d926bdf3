"""A few processes that decode every image but plain JPEGs, each with a thread of its own.

A decoder that takes too long, or too much memory, or crashes, ends its process: the request is
refused, a successor is started, and no other request is affected. Jobs go in the order of their
deadlines, where a client's recent decoding counts as lateness: a client that decodes much waits for
one that decodes little.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import lru_cache
from typing import IO

import numpy as np
from numpy.typing import NDArray

from san_core.errors import CorruptImageError, ImageTooLargeError
from san_core.preprocessing import Preprocessing
from service.errors import OverloadedError
from service.images.formats import HEIF
from service.images.helper import ANSWER, DONE, JOB, TOO_LARGE
from service.runtime.clock import Clock, monotonic_ms
from service.runtime.recent import Recent
from service.runtime.thread_pool import Workers

logger = logging.getLogger(__name__)

_WALL_FACTOR, _LEAST_WALL_S = 10.0, 2.0
"""A process that gets no CPU is given up after this multiple of its CPU time."""
_START_S = 60.0
FORGET_MS = 10_000.0
"""Time in which what a client has decoded counts half."""
_WAITING_OF_ONE = 16
"""Jobs of one client, waiting or running."""


class _LostError(Exception):
    """The process ended, by this signal or with this exit code."""

    def __init__(self, code: int | None) -> None:
        self.code = code


class _Helper:
    """One process, started when it is first needed; used by one thread at a time."""

    def __init__(self, memory_bytes: int, nice: int, *, heif: bool) -> None:
        self._nice = nice
        self._memory_bytes = memory_bytes
        self._heif = heif
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_started(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def start(self) -> subprocess.Popen[bytes]:
        """The process, ready for a job."""
        if self._process is None:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "service.images.helper",
                    str(self._memory_bytes),
                    str(self._nice),
                    *([HEIF] if self._heif else []),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Nothing of ours: no key, no setting; numpy's own threads would only take memory.
                env={
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                    "OPENBLAS_NUM_THREADS": "1",
                },
                start_new_session=True,
            )
            self._read(_START_S, ANSWER.size)
        return self._process

    def run(self, job: bytes, image: bytes, wall_s: float) -> tuple[int, bytes]:
        """Do one job; raises `_LostError` if the process ends over it."""
        process = self.start()
        assert process.stdin is not None
        try:
            process.stdin.write(job)
            process.stdin.write(image)
            process.stdin.flush()
        except OSError:
            raise _LostError(self.kill()) from None
        status, size = ANSWER.unpack(self._read(wall_s, ANSWER.size))
        return status, self._read(wall_s, size)

    def interrupt(self) -> None:
        """End the process under the thread that uses it, which clears up."""
        if (process := self._process) is not None:
            process.kill()

    def kill(self) -> int | None:
        """End the process; return how it ended."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.kill()
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                _closed(pipe)
        return code

    def _read(self, wall_s: float, size: int) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        found = bytearray()
        while len(found) < size:
            if not select.select([pipe], [], [], wall_s)[0]:
                self.kill()
                raise _LostError(-signal.SIGPROF)
            piece = os.read(pipe, size - len(found))
            if not piece:
                # It is gone already: what it ended with is what it died of.
                code = self._process.wait()
                self.kill()
                raise _LostError(code)
            found += piece
        return bytes(found)


def _closed(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        pipe.close()


class HelperPool:
    """Decodes in other processes, within limits on CPU time and memory."""

    def __init__(
        self,
        processes: int,
        *,
        memory_bytes: int,
        formats: Sequence[str],
        max_pixels: int,
        nice: int = 0,
        clock: Clock = monotonic_ms,
    ) -> None:
        self.lost: Counter[str] = Counter()
        """How many processes were lost, by what they died of."""
        self._memory_bytes = memory_bytes
        self._formats = tuple(formats)
        self._max_pixels = max_pixels
        self._clock = clock
        self._helpers = [
            _Helper(memory_bytes, nice, heif=HEIF in self._formats) for _ in range(processes)
        ]
        self._idle = list(self._helpers)  # as many as there are threads that want one
        self._choosing = threading.Lock()
        self._workers = Workers("helper", processes)
        self._debts = Recent(clock, FORGET_MS)
        self._waiting: Counter[str] = Counter()
        self._closing = False

    def warm(self) -> None:
        """Start the processes, in the background."""
        for _ in self._helpers:
            self._workers.submit(self._start_one).add_done_callback(self._told)

    async def decode(
        self,
        data: bytes,
        preprocessing: Preprocessing,
        resolution: int,
        *,
        cpu_ms: float,
        check: Callable[[], None] = lambda: None,
        client: str = "",
        deadline_ms: float = 0.0,
    ) -> tuple[NDArray[np.uint8], float, float]:
        """Pixels [T, T, 3], when decoding began, and how many milliseconds it took.

        `check` is called when its turn comes, and may raise.
        """
        if self._waiting[client] >= _WAITING_OF_ONE:
            raise OverloadedError(
                f"{_WAITING_OF_ONE} images of this client wait to be decoded already.", own=True
            )

        def work() -> tuple[NDArray[np.uint8], float, float]:
            check()
            begun = self._clock()
            try:
                pixels = self._decode(data, preprocessing, resolution, cpu_ms)
            finally:
                took = self._clock() - begun
                self._debts.add(client, took)
            return pixels, begun, took

        self._waiting[client] += 1
        try:
            urgency = deadline_ms + self._debts.of(client)
            return await self._workers.submit(work, urgency)
        except _LostError as lost:
            self.warm()
            raise self._blame(lost, cpu_ms) from None
        finally:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client]

    def close(self) -> None:
        """Stop the threads and end the processes."""
        self._closing = True
        for helper in self._helpers:
            helper.interrupt()
        self._workers.close()
        for helper in self._helpers:
            helper.kill()

    def _told(self, started: asyncio.Future[None]) -> None:
        if not started.cancelled() and (error := started.exception()) and not self._closing:
            logger.error("a helper that decodes images cannot be started", exc_info=error)

    def _start_one(self) -> None:
        with self._one(started=False) as helper:
            helper.start()

    @contextmanager
    def _one(self, *, started: bool) -> Iterator[_Helper]:
        """An idle helper, of this kind if there is one."""
        with self._choosing:
            helper = max(self._idle, key=lambda h: h.is_started is started)
            self._idle.remove(helper)
        try:
            yield helper
        finally:
            self._idle.append(helper)

    def _decode(
        self, data: bytes, preprocessing: Preprocessing, resolution: int, cpu_ms: float
    ) -> NDArray[np.uint8]:
        how = _how(preprocessing, self._formats, self._max_pixels)
        job = JOB.pack(len(data), cpu_ms / 1000, resolution, len(how)) + how
        with self._one(started=True) as helper:
            status, answer = helper.run(job, data, max(_LEAST_WALL_S, _WALL_FACTOR * cpu_ms / 1000))
        if status == DONE:
            return np.frombuffer(answer, np.uint8).reshape(resolution, resolution, 3)
        sentence = answer.decode()
        if status == TOO_LARGE:
            raise ImageTooLargeError(
                sentence
                or f"Decoding the image takes more than {self._memory_bytes // 1_000_000} MB; send "
                "it smaller."
            )
        raise CorruptImageError(sentence)

    def _blame(self, lost: _LostError, cpu_ms: float) -> Exception:
        """Count a lost process, and say what its request gets."""
        cause = signal.Signals(-lost.code).name if lost.code and lost.code < 0 else "exit"
        self.lost[cause] += 1
        if cause == "SIGPROF":
            return ImageTooLargeError(
                f"The image takes more than {cpu_ms:.0f} ms to decode; send it smaller, or as a "
                "JPEG."
            )
        logger.warning("a decoder ended with %s over an image of a client", cause)
        return CorruptImageError("The image ends its decoder; it is taken for corrupt.")


@lru_cache(maxsize=16)
def _how(preprocessing: Preprocessing, formats: tuple[str, ...], max_pixels: int) -> bytes:
    return json.dumps(
        {"preprocessing": asdict(preprocessing), "formats": formats, "max_pixels": max_pixels}
    ).encode()
