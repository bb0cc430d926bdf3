"""A main network compiled by OpenVINO, and how a batch runs on it."""

from __future__ import annotations

from concurrent.futures import Executor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from san_core.frontier import OperatingPoint


@dataclass(frozen=True)
class Halves:
    """The network compiled twice for one image, each time for half of the threads.

    Two large images side by side are sooner done than together on all threads, which wait for one
    another after every layer, and longest when a decoder has one of the cores.
    """

    requests: tuple[Any, Any]
    second: Executor
    """Runs the second of them; the first runs on the caller's thread."""

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Run an even number of images, each on the half that is free next."""
        left = iter(range(len(batch)))  # whose next() is one step for the interpreter
        logits: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(batch)

        def work(request: Any) -> None:
            for i in left:
                logits[i] = infer(request, batch[i : i + 1])

        beside = self.second.submit(work, self.requests[1])
        try:
            work(self.requests[0])
        finally:
            wait((beside,))
        beside.result()
        return np.concatenate(logits)


@dataclass(frozen=True)
class OpenVinoNetwork:
    """A compiled main network."""

    point: OperatingPoint
    memory_bytes: int
    single: Any
    """Request of the network compiled for one image: knowing the batch is worth a fifth."""
    many: Halves | Any
    """What runs a batch: halves for large images, or a request of the network compiled for any
    batch; None if there are only single images."""

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Run a batch [n, T, T, 3] and return logits [n, classes]."""
        if len(batch) == 1:
            return infer(self.single, batch)
        if not isinstance(self.many, Halves):
            return infer(self.many, batch)
        paired = len(batch) // 2 * 2
        logits = self.many.run(batch[:paired])
        if paired == len(batch):
            return logits
        return np.concatenate((logits, infer(self.single, batch[paired:])))

    def settle(self, most: int) -> None:
        """Run each batch size up to `most` once: the first time it costs several runs, and memory.

        Halves are run one after the other on the caller's thread: theirs is for who is served.
        """
        side = self.point.resolution
        images = np.zeros((most, side, side, 3), dtype=np.float32)
        if isinstance(self.many, Halves):
            for request in (self.single, *self.many.requests):
                infer(request, images[:1])
        else:
            for size in range(most, 0, -1):
                self.run(images[:size])


def infer(request: Any, batch: NDArray[np.float32]) -> NDArray[np.float32]:
    """Run a batch on one request; the result is the caller's to keep."""
    from openvino import Tensor

    request.set_input_tensor(Tensor(batch, shared_memory=True))
    request.infer()
    logits: NDArray[np.float32] = request.get_output_tensor().data.copy()
    return logits
