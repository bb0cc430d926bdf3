"""What `CudaDevice` asks of CUDA: which stream does what, in whose pool, and what is given back."""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import contextmanager
from itertools import count

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from service.engines.cuda import device as cuda_device
from service.engines.cuda.device import CudaDevice

STREAMS_PER_PRIORITY = 32


class Cuda:
    """Stands in for torch.cuda and notes what is asked of it."""

    def __init__(self, monkeypatch):
        self.notes = []
        self.current = "default"
        self._made, self._pools = {}, count(1)
        cuda = self

        class Stream:
            """torch hands out 32 streams per priority in turns, so the 33rd is the first."""

            def __init__(self, device, priority=0):
                self.priority = priority
                number = cuda._made[priority] = cuda._made.get(priority, -1) + 1
                self.id = (priority, number % STREAMS_PER_PRIORITY)

            def synchronize(self):
                cuda.notes.append(("stream waited for", self.id))

            def wait_stream(self, other):
                cuda.notes.append(("waits", self.id, other.id))

        class Event:
            def __init__(self, blocking=False):
                self.blocking = blocking

            def record(self, stream):
                cuda.notes.append(("event", stream.id))

            def synchronize(self):
                cuda.notes.append(("slept" if self.blocking else "spun",))

        class CUDAGraph:
            def capture_begin(self, pool, capture_error_mode):
                cuda.notes.append(("capture", cuda.current, pool, capture_error_mode))

            def capture_end(self):
                cuda.notes.append(("captured", cuda.current))

            def replay(self): ...

        @contextmanager
        def stream(wanted):
            before, self.current = self.current, wanted.id
            yield
            self.current = before

        def noted(name, answer=None):
            return lambda *_, **__: self.notes.append((name,)) or answer

        for name, value in {
            "Stream": Stream,
            "Event": Event,
            "CUDAGraph": CUDAGraph,
            "stream": stream,
            "graph_pool_handle": lambda: (0, next(self._pools)),
            "empty_cache": noted("emptied"),
            "synchronize": noted("device waited for"),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)

    def of(self, kind):
        return [note for note in self.notes if note[0] == kind]


@pytest.fixture
def cuda(monkeypatch):
    cuda_device._shared_stream.cache_clear()
    with FakeTensorMode():
        yield Cuda(monkeypatch)
    cuda_device._shared_stream.cache_clear()


def device(index=0):
    return CudaDevice(torch.device("cuda", index))


def captured(made):
    with made.building():
        return made.capture(lambda: None, lambda: None)


def test_engines_that_follow_one_another_share_the_streams_that_hold_memory(cuda):
    """The allocator reuses a block only on the stream that it was allocated on."""
    first, second = device(), device()
    for name in ("_run", "_upload", "_build"):
        assert getattr(first, name) is getattr(second, name)
        assert getattr(first, name) is not getattr(device(1), name)


def test_no_engine_captures_on_a_stream_that_anything_runs_on(cuda):
    """Not even after so many reloads that torch hands out its streams again."""
    former = None
    for _ in range(2 * STREAMS_PER_PRIORITY + 3):
        made = device()
        assert made._capture.id not in {made._run.id, made._upload.id, made._build.id}
        assert made._capture.id != former
        former = made._capture.id


def test_requests_go_before_captured_kernels_and_these_before_builds(cuda):
    made = device()
    order = (made._run, made._upload, made._capture, made._build)
    assert [stream.priority for stream in order] == [-2, -2, -1, 0]


def test_all_graphs_of_an_engine_are_captured_on_its_stream_into_its_pool(cuda):
    """So what cuBLAS takes for them lies in that pool, and no other engine's end frees it."""
    first, second = device(), device()
    for made in (first, first, second):
        captured(made)
    found = [(stream, pool) for _, stream, pool, _ in cuda.of("capture")]
    own, others = (first._capture.id, first._pool), (second._capture.id, second._pool)
    assert found == [own, own, own, others, others]  # the first keeps the pool open
    assert own[0] != others[0]
    assert own[1] != others[1]
    assert {mode for *_, mode in cuda.of("capture")} == {"thread_local"}


def test_a_graph_costs_one_run_beside_its_capture(cuda):
    """The libraries remember what they chose in the first run, and cold points wait for it."""
    done = []
    made = device()
    with made.building():
        made.capture(lambda: done.append("captured"), lambda: done.append("ran"))
    assert done == ["ran", "captured"]


def test_a_capture_that_fails_is_ended(cuda):
    made = device()

    def fails():
        raise RuntimeError("not permitted")

    with pytest.raises(RuntimeError, match="not permitted"), made.building():
        made.capture(fails, lambda: None)
    assert len(cuda.of("captured")) == len(cuda.of("capture"))
    captured(made)


def test_what_was_built_is_waited_for_once_and_the_whole_device_never(cuda):
    made = device()
    with made.building():
        assert cuda.current == made._build.id
    assert cuda.notes == [("stream waited for", made._build.id)]


def test_a_batch_is_slept_for_on_the_run_stream_and_no_stream_spins(cuda):
    made = device()
    cuda.notes.clear()
    with made.running():
        made.upload(torch.empty(2, device="cuda:0"), torch.empty(2))
        made.copy([torch.empty(2, device="cuda:0")], [torch.empty(2, device="cuda:0")])
        wait = made.mark()
    wait()
    run = made._run.id
    assert cuda.notes == [("waits", run, made._upload.id), ("event", run), ("slept",)]


def test_closing_lets_go_of_the_pool_and_gives_the_memory_back(cuda):
    made = device()
    captured(made)
    keeper = weakref.ref(made._keeper)
    emptied = len(cuda.of("emptied"))
    closing = threading.Thread(target=made.close)
    with made.building():
        closing.start()
        closing.join(0.05)
        assert made._keeper is not None  # what is being captured would open the pool again
    closing.join()
    gc.collect()
    assert keeper() is None
    assert len(cuda.of("emptied")) == emptied + 1
    assert cuda.notes[-1] == ("emptied",)
