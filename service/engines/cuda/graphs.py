"""Main networks as CUDA graphs: one graph per batch size of a small set, replayed for requests.

A small CNN on a GPU is bound by the launching of its kernels, not by the kernels; a graph launches
them all at once. It replays fixed addresses: those of a `GraphBody`, one per resolution. Networks
of other modes have the same shapes, so they share the body: their weights are copied into it before
their batch runs. A batch is padded to the next captured size; the rows that are too many hold
whatever was there before, since no row of a CNN in evaluation sees another.

What CUDA does and a CPU does not is behind `GraphDevice`; the rest of this file is tested without.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from threading import Lock
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from san_core.frontier import OperatingPoint
from service.engines.base import Images, finite
from service.engines.cuda.device_errors import is_full, is_lost
from service.engines.cuda.pinned_ring import PinnedRing, Slot
from service.engines.normalising import Normalise, as_tensor

logger = logging.getLogger(__name__)

Replay = Callable[[], None]


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes of a device's memory."""

    free: int
    total: int
    reserved: int
    """Held by this process's allocator."""
    pool: int
    """Of that, what the graphs of this engine share for intermediate results."""


class GraphDevice(Protocol):
    """The few things a GPU does differently.

    Nothing on the request path waits but what `mark` returns.
    """

    @property
    def device(self) -> torch.device:
        """Where tensors live."""

    @property
    def dtype(self) -> torch.dtype:
        """What networks compute in."""

    def describe(self) -> dict[str, str]:
        """Facts for `/version` and the log."""

    def memory(self) -> DeviceMemory:
        """How much memory is free and how much is held."""

    def building(self) -> AbstractContextManager[None]:
        """Generate and capture inside: one build at a time, while batches run, done when left."""

    def running(self) -> AbstractContextManager[None]:
        """Ask for copies and replays inside: they happen in order, on the device's time."""

    def upload(self, target: Tensor, source: Tensor) -> None:
        """Copy to the device while a batch runs; everything asked for later waits for the copy."""

    def copy(self, targets: list[Tensor], sources: list[Tensor]) -> None:
        """Copy in order with what runs."""

    def mark(self) -> Callable[[], None]:
        """Return what waits until all that was asked for so far is done."""

    def pinned(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Host memory that the device can copy from and to by itself."""

    def capture(self, work: Callable[[], None], warm_up: Callable[[], object]) -> Replay:
        """Warm up and record `work`, inside `building`; raise RuntimeError if it cannot be."""

    def release(self) -> None:
        """Give back memory that nothing uses."""

    def close(self) -> None:
        """Let go of the graphs' memory, too; nothing is captured afterwards."""


@dataclass
class GraphFacts:
    """What happened to the graphs of an engine so far."""

    captures: int = 0
    replays: Counter[int] = field(default_factory=Counter)
    """By size."""
    images: int = 0
    padding: int = 0
    """Rows of padding that were computed."""
    switches: int = 0
    """How often a body got other weights."""


_tokens = count(1)


class GraphBody:
    """The graphs of one resolution and what they refer to: weights, input, output.

    Make it inside `inference_mode` and `device.building()`.
    """

    def __init__(
        self,
        resolution: int,
        module: nn.Module,
        normalise: Normalise,
        device: GraphDevice,
        sizes: Sequence[int],
        facts: GraphFacts,
    ) -> None:
        """Take over a module that owns its weights, and capture it for one image.

        `finish` captures the other `sizes`.
        """
        self.fallback: str | None = None
        """Why some sizes are not captured; None if every size is."""
        self._is_eager = False
        self.holds = 0
        """Token of the network whose weights are in place."""
        self.sizes = tuple(sizes)
        self._module, self._normalise = module, normalise
        self._device, self._facts = device, facts
        self._state = {name: t for name, t in module.state_dict().items() if t.is_floating_point()}
        side, most = resolution, self.sizes[-1]
        # Every whole pixel value is exact in half precision.
        dtype = normalise.dtype
        self.input = torch.zeros((most, side, side, 3), dtype=dtype, device=device.device)
        logits: Tensor = module(normalise(self.input[:1]))
        self.output = torch.zeros((most, logits.shape[1]), device=device.device)  # [n, classes]
        self.memory_bytes = sum(
            t.nbytes for t in (*module.parameters(), *module.buffers(), self.input, self.output)
        )
        self._resolution = resolution
        self._graphs: dict[int, Replay] = {}
        self._finished = False
        self._capture(1)
        if not self._graphs and not self._is_eager:
            raise torch.OutOfMemoryError(f"not even one image fits: {self.fallback}")

    @property
    def captured(self) -> tuple[int, ...]:
        """Batch sizes that are replayed."""
        return tuple(sorted(self._graphs))

    @property
    def most(self) -> int:
        """The largest batch that runs at once; larger ones are split over the captured sizes."""
        return self.sizes[-1] if self._is_eager else max(self._graphs)

    def hold(self, token: int, weights: Mapping[str, Tensor]) -> None:
        """Put a network's weights in place, in order with what runs."""
        if self.holds != token:
            self._device.copy(list(self._state.values()), [weights[name] for name in self._state])
            self.holds = token
            self._facts.switches += 1

    def forward(self, n: int) -> None:
        """Run the first n rows of the input, and those that pad them."""
        sizes = self.sizes if self._is_eager else self.captured
        size = sizes[bisect_left(sizes, n)]
        self._facts.images += n
        self._facts.padding += size - n
        replay = self._graphs.get(size)
        if replay is None:
            self._eager(size)
        else:
            self._facts.replays[size] += 1
            replay()

    def _eager(self, size: int) -> None:
        self.output[:size].copy_(self._module(self._normalise(self.input[:size])))

    def finish(self) -> None:
        """Capture the other sizes, the largest first: the others then fit into what it took.

        Beside batches that run: nothing that they use is written to.
        """
        if not self._finished:
            self._finished = True
            for size in reversed(self.sizes[1:]):
                self._capture(size)

    def _capture(self, size: int) -> None:
        if self._is_eager:
            return
        try:
            replay = self._device.capture(partial(self._eager, size), partial(self._warm_up, size))
        except RuntimeError as error:
            if is_lost(error):
                raise
            self._is_eager = not is_full(error)  # what cannot be captured cannot be at any size
            what = "run eagerly" if self._is_eager else "are split"
            reason = str(error).partition("\n")[0]
            self.fallback = (
                f"at {self._resolution} px batches of {size} {what}, since they could not be "
                f"captured: {reason}"
            )
            logger.warning("CUDA graphs: %s", self.fallback)
        else:
            self._graphs = {**self._graphs, size: replay}
            self._facts.captures += 1

    def _warm_up(self, size: int) -> Tensor:
        logits: Tensor = self._module(self._normalise(torch.zeros_like(self.input[:size])))
        return logits


class GraphedNetwork:
    """One main network on a device: its weights, and the body that runs them."""

    def __init__(
        self,
        point: OperatingPoint,
        weights: Mapping[str, Tensor],
        body: GraphBody,
        device: GraphDevice,
        ring: PinnedRing,
        order: Lock,
        finish: Callable[[GraphBody], None],
        failed: Callable[[BaseException], BaseException],
    ) -> None:
        """Batches are asked for one by one, under `order`; `failed` tells what an error means."""
        self.point = point
        self.body = body
        self._weights = weights
        self._token = next(_tokens)
        self._device, self._ring, self._order = device, ring, order
        self._finish, self._failed = finish, failed
        held = sum(t.nbytes for t in weights.values())
        self.memory_bytes = held + body.memory_bytes
        """Weights and the body; the graphs' scratch memory is shared by all."""

    def run(self, images: Images) -> NDArray[np.float32]:
        """Run images [n, T, T, 3] and return logits [n, classes]."""
        try:
            logits = [self._run(part) for part in self._parts(images)]
        except BaseException as error:
            raise self._failed(error) from error
        return finite(logits[0] if len(logits) == 1 else np.concatenate(logits))

    def keep(self) -> None:
        """Nothing is kept."""

    def finish(self) -> None:
        """Capture batches; until then they are split."""
        self._finish(self.body)

    def _parts(self, images: Sequence[Images] | Images) -> Iterator[list[Images]]:
        """As many images at a time as a graph and a slot hold."""
        step = min(self.body.most, self._ring.image_bytes // images[0].nbytes)
        for start in range(0, len(images), step):
            yield list(images[start : start + step])

    def _run(self, images: list[Images]) -> NDArray[np.float32]:
        given = [as_tensor(image) for image in images]
        body, device, n = self.body, self._device, len(given)
        size = sum(image.nbytes for image in given)
        with torch.inference_mode(), self._ring.slot() as slot:
            for place, image in zip(_shaped(slot.images[:size], given), given, strict=True):
                place.copy_(image)
            with self._order, device.running():
                device.upload(slot.uploaded[:size], slot.images[:size])
                body.hold(self._token, self._weights)
                device.copy([body.input[:n]], [_shaped(slot.uploaded[:size], given)])
                body.forward(n)
                logits = _logits(slot, n, body.output.shape[1])
                device.copy([logits], [body.output[:n]])
                wait = device.mark()
            wait()
            # The slot belongs to the next batch; the result is the caller's to keep.
            result: NDArray[np.float32] = logits.numpy().copy()
        return result


def _shaped(buffer: Tensor, like: Sequence[Tensor]) -> Tensor:
    """Bytes as images [n, T, T, 3]."""
    return buffer.view(len(like), *like[0].shape)


def _logits(slot: Slot, n: int, classes: int) -> Tensor:
    return slot.logits[: n * classes].view(n, classes)
