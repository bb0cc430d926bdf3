"""A main network as CUDA graphs: one per batch size of a small set, replayed on the request path.

A small CNN on a GPU is bound by the launching of its kernels, not by the kernels; a graph launches
them all at once. It replays fixed addresses, so everything it touches is owned by the network here
and never moves: weights, input, output. A batch is padded to the next captured size; the rows that
are too many hold whatever was there before, since no row of a CNN in evaluation sees another.

What CUDA does and a CPU does not is behind `GraphDevice`; the rest of this file is tested without.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from san_core.frontier import OperatingPoint

logger = logging.getLogger(__name__)

Replay = Callable[[], None]


class GraphDevice(Protocol):
    """The few things a GPU does differently."""

    @property
    def device(self) -> torch.device:
        """Where tensors live."""

    @property
    def dtype(self) -> torch.dtype:
        """What networks compute in."""

    def describe(self) -> dict[str, str]:
        """Facts for `/version` and the log."""

    def building(self) -> AbstractContextManager[None]:
        """Generate and capture inside: one at a time, beside what runs, done when left."""

    def running(self) -> AbstractContextManager[None]:
        """Copy and replay inside: in order, on the engine's own stream."""

    def finish(self) -> None:
        """Wait until what was asked for inside `running` is done."""

    def pinned(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Host memory that the device can copy from and to by itself."""

    def capture(self, work: Callable[[], None]) -> Replay:
        """Warm `work` up and record it, inside `building`; raise RuntimeError if it cannot be."""

    def pool_bytes(self) -> int:
        """Memory that the intermediate results of all graphs share."""


class Staging:
    """The engine's pinned buffers, one to go in and one to come out, reused by every batch.

    One engine thread runs one batch at a time and waits for it, so there is never a second user.
    """

    def __init__(self, device: GraphDevice) -> None:
        self._device = device
        self._input = torch.empty(0, dtype=device.dtype)
        self._output = torch.empty(0)

    @property
    def bytes(self) -> int:
        """Host memory that is pinned."""
        return self._input.nbytes + self._output.nbytes

    def reserve(self, inputs: int, outputs: int) -> None:
        """Make room while a network is built: pinning takes too long to do for a request.

        A batch that runs meanwhile keeps the buffer it has.
        """
        if inputs > self._input.numel():
            self._input = self._device.pinned(inputs, self._device.dtype)
        if outputs > self._output.numel():
            self._output = self._device.pinned(outputs, torch.float32)

    def input(self, shape: Sequence[int]) -> Tensor:
        """The buffer to fill, in the network's precision."""
        return _shaped(self._input, shape)

    def output(self, shape: Sequence[int]) -> Tensor:
        """The buffer that logits come back in."""
        return _shaped(self._output, shape)


def _shaped(buffer: Tensor, shape: Sequence[int]) -> Tensor:
    return buffer[: int(np.prod(shape))].view(*shape)


class GraphedNetwork:
    """One main network on a device; make it inside `inference_mode` and `device.building()`."""

    def __init__(
        self,
        point: OperatingPoint,
        module: nn.Module,
        device: GraphDevice,
        staging: Staging,
        sizes: Sequence[int],
    ) -> None:
        """Take over a module that owns its weights, and capture it for batches of `sizes`."""
        self.point = point
        self.fallback: str | None = None
        """Why some sizes run eagerly; None if every size was captured."""
        self._module = module
        self._device = device
        self._staging = staging
        self._sizes = tuple(sizes)
        side, most = point.resolution, self._sizes[-1]
        # NHWC memory, which seen as NCHW is channels_last: what tensor cores want.
        self._input = torch.zeros(
            (most, side, side, 3), dtype=device.dtype, device=device.device
        )  # [n, T, T, 3]
        logits: Tensor = module(self._images(1))
        self._output = torch.zeros(
            (most, logits.shape[1]), dtype=torch.float32, device=device.device
        )  # [n, classes]
        held = [*module.parameters(), *module.buffers(), self._input, self._output]
        self.memory_bytes = sum(tensor.nbytes for tensor in held)
        """Weights and the fixed input and output; the graphs' scratch memory is shared by all."""
        staging.reserve(self._input.numel(), self._output.numel())
        self._graphs = self._captured()

    @property
    def captured(self) -> tuple[int, ...]:
        """Batch sizes that are replayed."""
        return tuple(self._graphs)

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Run a batch [n, T, T, 3] and return logits [n, classes]."""
        n = len(batch)
        size = self._sizes[bisect_left(self._sizes, n)]
        with torch.inference_mode(), self._device.running():
            staged = self._staging.input(batch.shape)
            staged.copy_(torch.from_numpy(batch))  # to half precision on the way: half the transfer
            self._input[:n].copy_(staged, non_blocking=True)
            replay = self._graphs.get(size)
            if replay is None:
                self._forward(size)
            else:
                replay()
            logits = self._staging.output((n, self._output.shape[1]))
            logits.copy_(self._output[:n], non_blocking=True)
            self._device.finish()
            # The buffer belongs to the next batch; the result is the caller's to keep.
            result: NDArray[np.float32] = logits.numpy().copy()
        return result

    def _images(self, size: int) -> Tensor:
        return self._input[:size].permute(0, 3, 1, 2)

    def _forward(self, size: int) -> None:
        self._output[:size].copy_(self._module(self._images(size)))

    def _captured(self) -> dict[int, Replay]:
        """Smallest first: if memory runs out, it is for the batches that gain the least."""
        graphs: dict[int, Replay] = {}
        for size in self._sizes:
            try:
                graphs[size] = self._device.capture(partial(self._forward, size))
            except RuntimeError as error:
                reason = str(error).partition("\n")[0]
                self.fallback = (
                    f"at {self.point.resolution} px batches of {size} and more run eagerly, since "
                    f"they could not be captured: {reason}"
                )
                logger.warning("CUDA graphs: %s", self.fallback)
                break
        return graphs
