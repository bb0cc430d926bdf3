"""The engine protocol: build a main network for an operating point, then run it.

Deciding (policy, batching) and running (engines) are different objects; an engine
knows nothing of requests, deadlines or HTTP. It is constructed as
``Engine(bundle, threads=..., max_batch=..., device=...)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from san_core.bundle import Bundle
    from san_core.frontier import OperatingPoint


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

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Normalised C-contiguous [n, T, T, 3] (1 <= n <= max_batch) to logits [n, classes].

        Called by one engine thread at a time. The result is the caller's to keep.
        """


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

    def close(self) -> None:
        """Release the device; no network built by this engine runs afterwards."""


class EngineFactory(Protocol):
    """An engine class, seen as the function that constructs it."""

    def __call__(self, bundle: Bundle, *, threads: int, max_batch: int, device: str) -> Engine:
        """Raise ``EngineUnavailableError`` with the reason if the engine cannot run here."""
