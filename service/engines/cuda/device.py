"""CUDA as `graphs` needs it: streams, pinned memory, capture. The only file that needs a GPU.

Four streams. *Run* carries the requests' replays, in order; *upload* copies the next batch's pixels
beside it; *build* carries generation and warm-up. These three are kept per device, not per engine:
the allocator reuses a freed block only on the stream it was allocated on, so an engine that came
with streams of its own would never reuse what the one before it held. *Capture* is the engine's
own and is never run on: cuBLAS keeps a workspace per stream, a recorded matrix product refers to
it, and since torch 2.14 destroying any graph drops the workspace of the stream it was captured on.

Requests go first: kernels of a graph run at the priority of the stream they were captured on.
Nothing here synchronises the device as a whole: that is forbidden while another thread captures.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import torch
from torch import Tensor

from service.engines.cuda.graphs import DeviceMemory, Replay

_PRIORITY = {"run": -2, "upload": -2, "capture": -1, "build": 0}
"""Smaller goes first. torch has 32 streams per priority, and hands them out in turns."""
_one_capture = threading.Lock()
"""Of the process, not of the engine: torch allows a single capture at a time."""


def _stream(device: torch.device, name: str) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=_PRIORITY[name])  # type: ignore[no-untyped-call]


_shared_stream = functools.cache(_stream)


class CudaDevice:
    """One GPU as one engine uses it."""

    dtype = torch.float16

    def __init__(self, device: torch.device) -> None:
        self.device = torch.empty(0, device=device).device  # with its index
        self._run = _shared_stream(self.device, "run")
        self._upload = _shared_stream(self.device, "upload")
        self._build = _shared_stream(self.device, "build")
        self._capture = _stream(self.device, "capture")
        # One pool for all graphs: they never run at the same time, so scratch memory can be the
        # same. What must outlive a replay, input and output, is allocated outside of it.
        self._pool = torch.cuda.graph_pool_handle()
        self._keeper: torch.cuda.CUDAGraph | None = None
        """Keeps the pool open: torch takes no more graphs into one whose last graph is gone."""

    def describe(self) -> dict[str, str]:
        """The GPU, as an operator would name it."""
        properties = torch.cuda.get_device_properties(self.device)
        return {
            "isa": f"{properties.name} sm_{properties.major}{properties.minor}",
            "gpu": f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, "
            f"sm_{properties.major}{properties.minor}",
            "cuda": str(torch.version.cuda),
        }

    def memory(self) -> DeviceMemory:
        """How much memory is free and how much is held."""
        free, total = torch.cuda.mem_get_info(self.device)
        segments = torch.cuda.memory_snapshot(  # type: ignore[no-untyped-call]
            mempool_id=self._pool, include_traces=False
        )
        pool = sum(segment["total_size"] for segment in segments)
        return DeviceMemory(free, total, torch.cuda.memory_reserved(self.device), pool)

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

    def upload(self, target: Tensor, source: Tensor) -> None:
        """Copy on a stream of its own; the run stream waits for it."""
        with torch.cuda.stream(self._upload):
            target.copy_(source, non_blocking=True)
        self._run.wait_stream(self._upload)

    def copy(self, targets: list[Tensor], sources: list[Tensor]) -> None:
        """Copy on the run stream, many small tensors in a few kernels."""
        if len(targets) == 1:
            targets[0].copy_(sources[0], non_blocking=True)
        else:
            torch._foreach_copy_(targets, sources, non_blocking=True)

    def mark(self) -> Callable[[], None]:
        """An event that is slept for: a stream that is waited for has its thread spin."""
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(self._run)
        wait: Callable[[], None] = event.synchronize
        return wait

    def pinned(self, elements: int, dtype: torch.dtype) -> Tensor:
        """Page-locked memory; without it a non-blocking copy blocks."""
        return torch.empty(elements, dtype=dtype, pin_memory=True)

    def capture(self, work: Callable[[], None], warm_up: Callable[[], object]) -> Replay:
        """Warm up once, for the libraries to choose their kernels, then record."""
        warm_up()
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

    def release(self) -> None:
        """Give back what the allocator holds unused; not while another thread captures."""
        with _one_capture, suppress(RuntimeError):  # a device that is lost gives nothing back
            torch.cuda.empty_cache()

    def close(self) -> None:
        """Let go of the pool, too."""
        with _one_capture:  # a capture under way would open it again
            self._keeper = None
        self.release()
