"""From bytes to what the network sees, on the decoder threads, most urgent first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from san_core.errors import ImageTooLargeError
from san_core.preprocessing import MAX_PIXELS, ImageHeader, Preprocessing, decode, inspect
from service.errors import ExpiredError
from service.images import jpeg
from service.images.header import quick_header
from service.runtime.clock import Clock
from service.runtime.thread_pool import Workers

_MOST_KEPT = 3
"""Decoded pixels of more than this many times the resolution are not kept: smaller resolutions are
then made of the resized ones, and what waits takes little memory."""
_MOST_SCANS = 100
_MOST_SCANNED_MEGAPIXELS = 1000
"""Scans x megapixels, about a millisecond each. A progressive photograph has about ten scans."""


@dataclass(slots=True)
class Decoded:
    """One image's pixels, at the resolution it was decoded for and, if asked, at smaller ones."""

    pixels: NDArray[np.uint8]
    """[T, T, 3]."""
    smaller: Callable[[int], NDArray[np.uint8]]
    """Makes them for a smaller resolution, of the pixels at the scale they were decoded at."""
    started_ms: float = 0.0
    took_ms: float = 0.0

    def at(self, resolution: int) -> NDArray[np.uint8]:
        """The pixels [T, T, 3] at a resolution up to the one they were decoded for."""
        return self.pixels if resolution == len(self.pixels) else self.smaller(resolution)


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
            found = to_pixels(data, preprocessing, resolution, self._max_pixels)
            found.started_ms, found.took_ms = started, self._clock() - started
            return found

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


def to_pixels(
    data: bytes, preprocessing: Preprocessing, resolution: int, max_pixels: int = MAX_PIXELS
) -> Decoded:
    """Decode, crop and resize; the short way if it is a plain JPEG."""
    image = jpeg.decode(data, preprocessing, resolution, max_pixels=max_pixels)
    if image is None:
        at_least = preprocessing.least_side(resolution)
        other = decode(data, max_pixels=max_pixels, at_least=at_least)
        pixels = preprocessing.to_pixels(other, resolution)
    else:
        pixels = image.at(resolution)
        if max(image.pixels.shape) <= _MOST_KEPT * resolution:
            return Decoded(pixels, image.at)
    return Decoded(pixels, partial(_shrunk, pixels))


def _shrunk(pixels: NDArray[np.uint8], resolution: int) -> NDArray[np.uint8]:
    size = (resolution, resolution)
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR))


def to_input(
    data: bytes, preprocessing: Preprocessing, resolution: int, max_pixels: int = MAX_PIXELS
) -> NDArray[np.uint8]:
    """Decode, resize and crop to pixels [T, T, 3]."""
    return to_pixels(data, preprocessing, resolution, max_pixels).pixels
