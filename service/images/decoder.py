"""From bytes to what the network sees: plain JPEGs on threads of this process, all else in helpers.

A request's cost is read from its header and bounded before a pixel is decoded. What a plain JPEG
costs is known well, so it is decoded here, the most urgent first; a large one on a nice thread of
its own, so that small ones never wait for it. Everything else goes to processes that can be killed
(`helper_pool`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from san_core.errors import (
    EndlessHeaderError,
    ImageError,
    ImageTooLargeError,
    UnsupportedFormatError,
)
from san_core.preprocessing import Preprocessing, decode
from service.errors import ExpiredError
from service.images import jpeg
from service.images.header import QUICK_MS, Header, read_header
from service.images.helper_pool import FORGET_MS, HelperPool
from service.runtime.clock import Clock
from service.runtime.recent import Recent
from service.runtime.thread_pool import Workers

_READ_AT_ONCE = 1_000_000
"""Headers of larger files are read on a decoder thread: counting scans passes over all bytes."""
_MOST_KEPT = 3
"""Decoded pixels of more than this many times the resolution are not kept: smaller resolutions are
then made of the resized ones, and what waits takes little memory."""
_IN_ONE_REQUEST = 4
"""How much more time all images of a request may take than a single one."""
_LEAST_CPU_MS, _CPU_FACTOR = 100.0, 4.0
"""A helper gets this many times what the header promises, but not less than so much."""


@dataclass(slots=True)
class Decoded:
    """One image, ready to run."""

    pixels: NDArray[np.uint8]
    """[T, T, 3]."""
    started_ms: float
    took_ms: float
    smaller: Callable[[int], NDArray[np.uint8]] | None = None
    """Makes them for a smaller resolution, of the pixels at the scale they were decoded at."""

    def at(self, resolution: int) -> NDArray[np.uint8]:
        """The pixels [T, T, 3] at a resolution up to the one they were decoded for."""
        if resolution == len(self.pixels):
            return self.pixels
        if self.smaller is not None:
            return self.smaller(resolution)
        size = (resolution, resolution)
        return np.asarray(Image.fromarray(self.pixels).resize(size, Image.Resampling.BILINEAR))


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """What one image may be and cost."""

    formats: tuple[str, ...] = ("JPEG", "PNG", "WEBP")
    max_pixels: int = 50_000_000
    max_ms: float = 250.0
    max_bytes: int = 128_000_000

    def check(self, header: Header) -> None:
        """Raise if decoding this would take too much."""
        if header.pixels > self.max_pixels:
            raise ImageTooLargeError(
                f"The image has {header.width} x {header.height} pixels; at most "
                f"{self.max_pixels} are taken. Send it smaller."
            )
        if header.decode_ms > self.max_ms or header.memory_bytes > self.max_bytes:
            scans = f" in {header.scans} scans" if header.scans > 1 else ""
            raise ImageTooLargeError(
                f"A {header.format} of {header.width} x {header.height} pixels{scans} takes up to "
                f"{header.decode_ms:.0f} ms and {header.memory_bytes / 1e6:.0f} MB to decode; at "
                f"most {self.max_ms:.0f} ms and {self.max_bytes / 1e6:.0f} MB are spent on an "
                "image. Send it smaller, or as a baseline JPEG."
            )

    def check_all(self, headers: Sequence[Header | None]) -> None:
        """Raise if decoding all images of a request would take too much."""
        most_ms = _IN_ONE_REQUEST * self.max_ms
        all_ms = sum(header.decode_ms for header in headers if header is not None)
        if len(headers) > 1 and all_ms > most_ms:
            raise ImageTooLargeError(
                f"These {len(headers)} images take up to {all_ms:.0f} ms to decode; at most "
                f"{most_ms:.0f} ms are spent on one request. Send them in several."
            )


@dataclass(frozen=True, slots=True)
class DecodeJob:
    """What decodes one image for a resolution; any thread may call it if it is quick."""

    data: bytes
    header: Header
    preprocessing: Preprocessing
    resolution: int
    deadline_ms: float
    late: Callable[[], bool]
    clock: Clock
    client: str

    @property
    def quick(self) -> bool:
        """Whether any thread may do it."""
        return self.header.quick

    def check(self) -> None:
        """Refuse once the deadline has passed, unless a late answer is wanted then."""
        if self.clock() > self.deadline_ms and not self.late():
            raise ExpiredError("The deadline passed while the image waited to be decoded.")

    def __call__(self) -> Decoded:
        """Decode a plain JPEG on this thread."""
        self.check()
        started = self.clock()
        image = jpeg.decode(self.data, self.header, self.preprocessing, self.resolution)
        pixels = image.at(self.resolution)
        kept = image.at if max(image.pixels.shape) <= _MOST_KEPT * self.resolution else None
        return Decoded(pixels, started, self.clock() - started, kept)


def are_quick(sources: Iterable[object]) -> bool:
    """Whether any thread may decode all of these: their cost is known, and small together."""
    jobs = [source for source in sources if isinstance(source, DecodeJob)]
    return all(job.quick for job in jobs) and sum(x.header.decode_ms for x in jobs) <= QUICK_MS


class Decoder:
    """Looks at headers and decodes, within the limits."""

    def __init__(
        self,
        workers: Workers,
        large: Workers,
        helpers: HelperPool,
        clock: Clock,
        limits: DecodeLimits,
    ) -> None:
        self._workers = workers
        self._large = large
        self._debts = Recent(clock, FORGET_MS)
        self._helpers = helpers
        self._clock = clock
        self.limits = limits
        self._formats = frozenset(limits.formats)

    async def header(self, data: bytes, urgency: float) -> Header:
        """Read and check the header; no pixel is decoded."""
        if len(data) <= _READ_AT_ONCE:
            header = read_header(data, self._formats)
        else:
            header = await self._workers.submit(lambda: read_header(data, self._formats), urgency)
        self.limits.check(header)
        return header

    def look(self, beginning: bytes) -> None:
        """Raise if an image that begins so is not taken, whatever follows.

        What a header promises to cost only grows with the bytes that follow it.
        """
        try:
            header = read_header(beginning, self._formats)
        except (UnsupportedFormatError, EndlessHeaderError):
            raise
        except ImageError:
            return  # the rest may mend it
        self.limits.check(header)

    def job(
        self,
        data: bytes,
        preprocessing: Preprocessing,
        resolution: int,
        deadline_ms: float,
        *,
        header: Header | None = None,
        client: str = "",
        late: Callable[[], bool] = lambda: True,
    ) -> DecodeJob:
        """What decodes for a resolution, at reduced scale where the format allows."""
        header = header or read_header(data, self._formats)
        return DecodeJob(
            data, header, preprocessing, resolution, deadline_ms, late, self._clock, client
        )

    def decode(self, job: DecodeJob, deadline_ms: float) -> asyncio.Future[Decoded]:
        """Do a job in its turn, on one of the threads or in a helper."""
        if job.quick:
            return self._workers.submit(job, deadline_ms)
        if job.header.plain:
            urgency = deadline_ms + self._debts.of(job.client)
            return self._large.submit(lambda: self._decode_large(job), urgency)
        return asyncio.ensure_future(self._decode_elsewhere(job, deadline_ms))

    def _decode_large(self, job: DecodeJob) -> Decoded:
        begun = self._clock()
        try:
            return job()
        finally:
            self._debts.add(job.client, self._clock() - begun)

    async def _decode_elsewhere(self, job: DecodeJob, deadline_ms: float) -> Decoded:
        cpu_ms = min(self.limits.max_ms, max(_LEAST_CPU_MS, _CPU_FACTOR * job.header.decode_ms))
        pixels, began_ms, took_ms = await self._helpers.decode(
            job.data,
            job.preprocessing,
            job.resolution,
            check=job.check,
            cpu_ms=cpu_ms,
            client=job.client,
            deadline_ms=deadline_ms,
        )
        return Decoded(pixels, began_ms, took_ms)


def to_input(data: bytes, preprocessing: Preprocessing, resolution: int) -> NDArray[np.uint8]:
    """Decode, resize and crop an image of our own, in this process, to pixels [T, T, 3]."""
    if data[:3] == b"\xff\xd8\xff":
        pixels = jpeg.to_pixels(data, preprocessing, resolution)
    else:
        image = decode(data, at_least=preprocessing.least_side(resolution))
        pixels = preprocessing.to_pixels(image, resolution)
    return pixels
