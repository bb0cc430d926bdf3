"""The engine protocol: build a main network for an operating point, then run it.

Deciding (policy, batching) and running (engines) are different objects; an engine
knows nothing of requests, deadlines or HTTP. It is constructed as
``Engine(bundle, threads=..., max_batch=..., device=...)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from san_core.bundle import Bundle
    from san_core.cost import Cost
    from san_core.frontier import OperatingPoint


Images = NDArray[np.uint8] | NDArray[np.float32]
"""Pixel values 0 to 255, [n, T, T, 3]: bytes as a decoder gives them. Floats are for pixels that a
client prepared itself, whose values need not be whole."""


def batch_sizes(max_batch: int) -> tuple[int, ...]:
    """Sizes worth preparing for and measuring: 1, 2, 4 … and the largest."""
    sizes = {1, max_batch}
    size = 2
    while size < max_batch:
        sizes.add(size)
        size *= 2
    return tuple(sorted(sizes))


class RunnableNetwork(Protocol):
    """One main network made ready by an engine."""

    @property
    def point(self) -> OperatingPoint:
        """The (resolution, mode, precision) this network was generated for."""

    @property
    def memory_bytes(self) -> int:
        """Memory it occupies, working memory included; what the weight cache counts."""

    def run(self, images: Images) -> NDArray[np.float32]:
        """C-contiguous images [n, T, T, 3] (1 <= n <= max_batch) to logits [n, classes].

        Normalising is part of the network. Called by one engine thread at a time. The result is
        the caller's to keep.
        """

    def finish(self) -> None:
        """Make ready what is not needed for a first answer: batches. Slow; on any thread, once."""


class Engine(Protocol):
    """Generates, compiles and runs main networks of one bundle on one device."""

    @property
    def name(self) -> str:
        """``"torch"`` or ``"openvino"``."""

    @property
    def device(self) -> str:
        """Where it runs, e.g. ``"cpu"`` or ``"cuda:0"``."""

    @property
    def precisions(self) -> tuple[str, ...]:
        """Precisions ``build`` accepts, ``"float"`` first."""

    def describe(self) -> dict[str, str]:
        """Facts for ``/version`` and the log: library version, ISA, threads, why it was chosen."""

    def build(self, point: OperatingPoint) -> RunnableNetwork:
        """Generate the weights of ``point`` from the one meta network, fold and compile them.

        Slow; thread-safe; never called on the event loop.
        """

    def cost(self, resolution: int, precision: str) -> Cost:
        """What one image costs at a shape: multiply-adds and bytes; not for the event loop."""

    def close(self) -> None:
        """Release the device; no network built by this engine runs afterwards."""


class EngineFactory(Protocol):
    """An engine class, seen as the function that constructs it."""

    def __call__(self, bundle: Bundle, *, threads: int, max_batch: int, device: str) -> Engine:
        """Raise ``EngineUnavailableError`` with the reason if the engine cannot run here."""
