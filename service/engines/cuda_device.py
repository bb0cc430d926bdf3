"""CUDA as `cuda_graphs` needs it: streams, pinned memory, capture. The only file that needs a GPU.

Three streams. *Run*, the engine's own, carries the requests' copies and replays, in order. *Build*
carries generation and warm-up beside it. *Capture*, one per process and device, is never run on:
cuBLAS keeps a workspace per stream for as long as the process lives, and that of a recorded matrix
product must not be one that a later build uses while the graph replays.

Nothing here synchronises the device as a whole: that is forbidden while another thread captures.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import torch
from torch import Tensor

from service.engines.cuda_graphs import Replay

_WARM_UPS = 3
_one_capture = threading.Lock()
"""Of the process, not of the engine: torch allows a single capture at a time."""


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


@functools.cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    return _stream(device)


class CudaDevice:
    """One GPU as one engine uses it."""

    dtype = torch.float16

    def __init__(self, device: torch.device) -> None:
        self.device = torch.empty(0, device=device).device  # with its index
        self._run, self._build = _stream(self.device), _stream(self.device)
        self._capture = _capture_stream(self.device)
        # One pool for all graphs: none runs beside another, so their scratch memory can be the
        # same. What must outlive a replay, input and output, is allocated outside of it.
        self._pool = torch.cuda.graph_pool_handle()
        self._keeper: torch.cuda.CUDAGraph | None = None
        """Keeps the pool open: torch takes no more graphs into one whose last graph is gone."""

    def describe(self) -> dict[str, str]:
        """The GPU, as an operator would name it."""
        properties = torch.cuda.get_device_properties(self.device)
        return {
            "gpu": f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, "
            f"sm_{properties.major}{properties.minor}",
            "cuda": str(torch.version.cuda),
        }

    @contextmanager
    def building(self) -> Iterator[None]:
        """Hold the process's one right to capture, and the build stream."""
        with _one_capture, torch.cuda.stream(self._build):
            try:
                yield
            finally:
                # The run stream does not wait for this one: what was built must be there.
                self._build.synchronize()

    def running(self) -> AbstractContextManager[None]:
        """Make the run stream the current one, and this device the thread's."""
        stream: AbstractContextManager[None] = torch.cuda.stream(self._run)
        return stream

    def finish(self) -> None:
        """Wait for the run stream."""
        self._run.synchronize()

    def pinned(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Page-locked memory; without it a non-blocking copy blocks."""
        return torch.empty(elements, dtype=dtype, pin_memory=True)

    def capture(self, work: Callable[[], None]) -> Replay:
        """Run `work` until the libraries have chosen their kernels, then record it."""
        for _ in range(_WARM_UPS):
            work()
        self._build.synchronize()
        if self._keeper is None:
            self._keeper = self._record(lambda: torch.zeros(1, device=self.device))
        return self._record(work).replay

    def _record(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        """Capture without running.

        `thread_local`: other threads go on serving; only what this one does is held to the rules.
        torch's own context manager would empty the allocator's cache under them.
        """
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._capture):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            except BaseException:
                with suppress(RuntimeError):  # of a broken capture; the first error tells more
                    graph.capture_end()
                raise
            graph.capture_end()
        return graph

    def pool_bytes(self) -> int:
        """Segments that the allocator holds for the graphs."""
        segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        return sum(s["total_size"] for s in segments if s["segment_pool_id"] == self._pool)
