"""The service's own decoder and engine without the service around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from san_core.bundle import load
from san_core.frontier import OperatingPoint
from service.engines.base import Engine, RunnableNetwork
from service.images.decoder import to_input
from service.runtime.cores import available_cores, plan_cores
from service.settings import Settings


class Parts:
    """Decoder and engine of one bundle, set up as the service sets them up."""

    def __init__(self, bundle: Path | None, engine: str, threads: int | None = None) -> None:
        """`engine` is the name of the engine that the service said it uses."""
        self._bundle = load(bundle)
        threads = threads or plan_cores(available_cores(), engine).engine
        max_batch = Settings.model_fields["max_batch"].default
        made: Engine
        if engine == "openvino":
            from service.engines.openvino.engine import OpenVinoEngine

            made = OpenVinoEngine(self._bundle, threads=threads, max_batch=max_batch)
        else:
            from service.engines.torch_engine import TorchEngine

            made = TorchEngine(self._bundle, threads=threads, max_batch=max_batch, device="cpu")
        self._engine = made

    def network(self, point: OperatingPoint) -> RunnableNetwork:
        """The main network of a point."""
        return self._engine.build(point)

    def decode(self, body: bytes, resolution: int) -> NDArray[np.uint8]:
        """One image, as the network takes it: [1, T, T, 3]."""
        return to_input(body, self._bundle.manifest.preprocessing, resolution)[np.newaxis]


def most_per_s(calls: Sequence[Callable[[], object]], seconds: float) -> float:
    """How often a second they are called in all, each over and over on a thread of its own."""
    until = time.monotonic() + seconds

    def work(call: Callable[[], object]) -> int:
        done = 0
        while time.monotonic() < until:
            call()
            done += 1
        return done

    with ThreadPoolExecutor(len(calls)) as threads:
        return sum(threads.map(work, calls)) / seconds
