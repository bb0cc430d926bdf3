"""A device for `cuda_graphs` that is a CPU, and writes down what it is asked to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class NotedDevice:
    """Captures by remembering the work; a replay does it again on the same tensors."""

    def __init__(self, dtype: torch.dtype = torch.float32, most_captures: int = 1000) -> None:
        self.device = torch.device("cpu")
        self.dtype = dtype
        self.notes: list[str] = []
        self.error: Exception = RuntimeError("operation not permitted\nwhen stream is capturing")
        self.where = ""
        self._captures_left = most_captures

    def describe(self) -> dict[str, str]:
        return {"gpu": "none"}

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

    def finish(self) -> None:
        assert self.where == "running"
        self.notes.append("finish")

    def pinned(self, elements: int, dtype: torch.dtype) -> Tensor:
        assert self.where == "building"
        self.notes.append(f"pin {elements}")
        return torch.full((elements,), float("nan"), dtype=dtype)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        assert self.where == "building"
        assert torch.is_inference_mode_enabled()
        if not self._captures_left:
            raise self.error
        self._captures_left -= 1
        work()
        number = len([note for note in self.notes if note.startswith("capture")])
        self.notes.append(f"capture {number}")

        def replay() -> None:
            assert self.where == "running"
            self.notes.append(f"replay {number}")
            work()

        return replay

    def pool_bytes(self) -> int:
        return 5_000_000
