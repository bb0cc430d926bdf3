"""From bytes to what the network sees, on the decoder threads, most urgent first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from san_core.errors import ImageTooLargeError
from san_core.preprocessing import MAX_PIXELS, ImageHeader, Preprocessing, decode, inspect
from service.errors import ExpiredError
from service.images import jpeg
from service.images.header import quick_header
from service.runtime.clock import Clock
from service.runtime.thread_pool import Workers

_MOST_SCANS = 100
_MOST_SCANNED_MEGAPIXELS = 1000
"""Scans x megapixels, about a millisecond each. A progressive photograph has about ten scans."""


@dataclass(slots=True)
class Decoded:
    """One image, ready to run."""

    pixels: NDArray[np.float32]
    """[T, T, 3], normalised."""
    started_ms: float
    took_ms: float


class Decoder:
    """Looks at headers and decodes, within the limits."""

    def __init__(self, workers: Workers, clock: Clock, *, max_pixels: int, max_frames: int) -> None:
        self._workers = workers
        self._clock = clock
        self._max_pixels = max_pixels
        self._max_frames = max_frames

    async def header(self, data: bytes, urgency: float) -> ImageHeader:
        """Read and check the header; no pixel is decoded."""
        header = quick_header(data)
        if header is None:
            header = await self._workers.submit(lambda: inspect(data), urgency)
        if header.pixels > self._max_pixels:
            raise ImageTooLargeError(
                f"The image has {header.width} x {header.height} pixels; at most "
                f"{self._max_pixels} are taken. Send it smaller."
            )
        if header.frames > self._max_frames:
            raise ImageTooLargeError(
                f"The image has {header.frames} frames; at most {self._max_frames} are taken."
            )
        if header.scans > 1:
            _check_scans(header)
        return header

    def job(
        self,
        data: bytes,
        preprocessing: Preprocessing,
        resolution: int,
        deadline_ms: float,
        *,
        late: Callable[[], bool] = lambda: True,
    ) -> Callable[[], Decoded]:
        """What decodes for a resolution, at reduced scale where the format allows.

        Once the deadline has passed it refuses, unless a `late` answer is wanted then.
        """

        def work() -> Decoded:
            started = self._clock()
            if started > deadline_ms and not late():
                raise ExpiredError("The deadline passed while the image waited to be decoded.")
            pixels = to_input(data, preprocessing, resolution, self._max_pixels)
            return Decoded(pixels, started, self._clock() - started)

        return work

    def decode(self, job: Callable[[], Decoded], deadline_ms: float) -> asyncio.Future[Decoded]:
        """Do a job on a decoder thread, in its turn."""
        return self._workers.submit(job, deadline_ms)


def _check_scans(header: ImageHeader) -> None:
    """Refuse a JPEG whose decoder would pass over it so often that it holds a thread for long."""
    most = min(_MOST_SCANS, max(1, _MOST_SCANNED_MEGAPIXELS * 1_000_000 // header.pixels))
    if header.scans > most:
        raise ImageTooLargeError(
            f"The JPEG has {header.scans} scans; at {header.width} x {header.height} pixels at "
            f"most {most} are taken. Send it as a baseline JPEG."
        )


def to_input(
    data: bytes, preprocessing: Preprocessing, resolution: int, max_pixels: int = MAX_PIXELS
) -> NDArray[np.float32]:
    """Decode, resize, crop and normalise: [T, T, 3]; the short way if it is a plain JPEG."""
    pixels = jpeg.to_pixels(data, preprocessing, resolution, max_pixels=max_pixels)
    if pixels is None:
        at_least = preprocessing.least_side(resolution)
        image = decode(data, max_pixels=max_pixels, at_least=at_least)
        pixels = preprocessing.to_pixels(image, resolution)
    return preprocessing.normalise(pixels)
