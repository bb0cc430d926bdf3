"""Devices for `graphs` that are a CPU: one writes down, one puts off, one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from service.engines.cuda.graphs import DeviceMemory


class NotedDevice:
    """Captures by remembering the work; a replay does it again on the same tensors."""

    def __init__(self, dtype: torch.dtype = torch.float32, most_captures: int = 1000) -> None:
        self.device = torch.device("cpu")
        self.dtype = dtype
        self.notes: list[str] = []
        self.error: BaseException = RuntimeError("operation not permitted\nwhile capturing")
        self.where = ""
        self.closed = False
        self.free = 10_000_000_000
        self._captures_left = most_captures

    def describe(self) -> dict[str, str]:
        return {"gpu": "none"}

    def memory(self) -> DeviceMemory:
        return DeviceMemory(self.free, 2 * self.free, 7_000_000, 5_000_000)

    @contextmanager
    def building(self) -> Iterator[None]:
        yield from self._inside("building")

    @contextmanager
    def running(self) -> Iterator[None]:
        yield from self._inside("running")

    def _inside(self, where: str) -> Iterator[None]:
        assert not self.where, f"{where} while {self.where}"
        self.where = where
        try:
            yield
        finally:
            self.where = ""

    def upload(self, target: Tensor, source: Tensor) -> None:
        assert self.where == "running"
        self.do("upload", lambda: target.copy_(source))

    def copy(self, targets: list[Tensor], sources: list[Tensor]) -> None:
        assert self.where == "running"
        assert [t.shape for t in targets] == [s.shape for s in sources]
        self.do(
            "copy" if len(targets) == 1 else "weights",
            lambda: [t.copy_(s) for t, s in zip(targets, sources, strict=True)],
        )

    def mark(self) -> Callable[[], None]:
        assert self.where == "running"
        return lambda: self.notes.append("wait")

    def do(self, note: str, work: Callable[[], object]) -> None:
        """What the device is asked for on the request path."""
        self.notes.append(note)
        work()

    def pinned(self, elements: int, dtype: torch.dtype) -> Tensor:
        assert self.where == "building"
        self.notes.append(f"pin {elements}")
        return torch.full((elements,), float("nan") if dtype.is_floating_point else 77, dtype=dtype)

    def capture(
        self, work: Callable[[], None], warm_up: Callable[[], object]
    ) -> Callable[[], None]:
        assert self.where == "building"
        assert torch.is_inference_mode_enabled()
        if not self._captures_left:
            raise self.error
        self._captures_left -= 1
        warm_up()
        number = len([note for note in self.notes if note.startswith("capture")])
        self.notes.append(f"capture {number}")

        def replay() -> None:
            assert self.where == "running"
            self.do(f"replay {number}", work)

        return replay

    def release(self) -> None:
        self.notes.append("release")

    def close(self) -> None:
        self.closed = True


class DeferringDevice(NotedDevice):
    """Nothing that is asked for happens before somebody waits for it."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(dtype)
        self._put_off: list[Callable[[], object]] = []

    def do(self, note: str, work: Callable[[], object]) -> None:
        self.notes.append(note)
        self._put_off.append(work)

    def mark(self) -> Callable[[], None]:
        until = len(self._put_off)
        asked = self._put_off

        def wait() -> None:
            self.notes.append("wait")
            with torch.inference_mode():
                for place in range(until):
                    work, asked[place] = asked[place], lambda: None
                    work()

        return wait


class FailingDevice(NotedDevice):
    """Fails where it is told to, once it is told to."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(dtype)
        self.fails: dict[str, list[BaseException]] = {}
        """Errors by place: "building", "capture", "replay"; each is raised once, the last for ever.
        """

    def _fail(self, place: str) -> None:
        errors = self.fails.get(place)
        if errors:
            raise errors.pop(0) if len(errors) > 1 else errors[0]

    @contextmanager
    def building(self) -> Iterator[None]:
        with super().building():
            self._fail("building")
            yield

    def capture(
        self, work: Callable[[], None], warm_up: Callable[[], object]
    ) -> Callable[[], None]:
        self._fail("capture")
        return super().capture(work, warm_up)

    def do(self, note: str, work: Callable[[], object]) -> None:
        if note.startswith("replay"):
            self._fail("replay")
        super().do(note, work)
