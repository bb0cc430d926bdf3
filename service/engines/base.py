"""The engine protocol: build a main network for an operating point, then run it.

Deciding (policy, batching) and running (engines) are different objects; an engine
knows nothing of requests, deadlines or HTTP. It is constructed as
``Engine(bundle, threads=..., max_batch=..., device=...)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from service.errors import EngineLostError, NotFiniteError

if TYPE_CHECKING:
    from san_core.frontier import OperatingPoint
    from san_core.network.cost import Cost


Images = NDArray[np.uint8]
"""Pixels [n, T, T, 3], 0 to 255: the one format between decoders and engines."""


_SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64)
"""As vLLM and SGLang space theirs: every size costs a capture and a measurement."""


def batch_sizes(max_batch: int) -> tuple[int, ...]:
    """Sizes worth preparing for and measuring: a batch is padded to the next by a half at most."""
    larger = range(96, max_batch, 32)
    return tuple(sorted({size for size in (*_SIZES, *larger) if size < max_batch} | {max_batch}))


def finite(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """The logits, if each of them is a number; what is not must never be served as an answer."""
    if not np.isfinite(logits).all():
        raise NotFiniteError(
            "The network computed something that is not a number; the answer would mean nothing."
        )
    return logits


@dataclass(frozen=True)
class EngineTraits:
    """In what an engine differs from one that runs a batch after the other, as large as it is."""

    in_flight: int = 1
    """How many batches may be inside `run` at once: one computes while the next is copied."""
    pads: bool = False
    """Whether a batch costs what the next of `batch_sizes` costs."""


def traits(engine: Engine) -> EngineTraits:
    """An engine's traits; one that says nothing has none."""
    found: EngineTraits = getattr(engine, "traits", EngineTraits())
    return found


def room_bytes(engine: Engine) -> int | None:
    """What more networks may occupy on the engine's device now; None: as the settings say."""
    ask = getattr(engine, "room_bytes", None)
    found: int | None = ask() if ask else None
    return found


def lost(engine: Engine) -> EngineLostError | None:
    """Why the engine will never run again in this process; None as long as it does."""
    found: EngineLostError | None = getattr(engine, "lost", None)
    return found


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

        Normalising is part of the network. Called by as many threads at a time as the engine's
        traits say. The result is the caller's to keep.
        """

    def keep(self) -> None:
        """Leave it on the disk for later processes, if the engine does that."""

    def finish(self) -> None:
        """Make ready what is not needed for a first answer: batches. Slow; on any thread.

        Called again if others used the machine: what was compared then is compared once more.
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

    def cost(self, resolution: int, precision: str) -> Cost:
        """What one image costs at a shape: multiply-adds and bytes; not for the event loop."""

    def close(self) -> None:
        """Release the device; no network built by this engine runs afterwards."""
