"""The real service on a real socket, with an engine whose times are written down.

A browser test on a busy machine must not depend on how fast the machine is. The service's clock
here runs a thousand times slower than real time, and jumps by what a run or a build is said to
cost: what the page shows is the same everywhere.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from san_core.bundle import Accuracy, Manifest, save
from san_core.frontier import OperatingPoint
from san_core.network.cost import Cost
from san_core.network.network_config import NetworkConfig
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from service.app import make_app, make_service
from service.http.connection.server import Server, server_config
from service.settings import Settings

RUN_MS = {32: 2.0, 48: 4.0, 64: 8.0, 96: 30.0}
TOP1 = {32: 0.31, 48: 0.42, 64: 0.55, 96: 0.68}
BUILD_MS = 60.0
CLASSES = ("matchstick", "traffic light", "beacon", "altar", "switch", "<b>bold</b>")


class SlowClock:
    """Milliseconds: a thousandth of the real ones, plus what was said to pass."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._passed = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        return self._passed + (time.monotonic() - self._begun)

    def advance(self, ms: float) -> None:
        with self._lock:
            self._passed += ms


class ScriptedNetwork:
    """Says the first class below 64 px and the second from there on."""

    memory_bytes = 4_000_000

    def __init__(self, point: OperatingPoint, clock: SlowClock) -> None:
        self.point = point
        self._clock = clock

    def run(self, batch: np.ndarray) -> np.ndarray:
        self._clock.advance(RUN_MS[self.point.resolution] * len(batch))
        logits = np.tile(-0.5 * np.arange(len(CLASSES), dtype=np.float32), (len(batch), 1))
        logits[:, 0 if self.point.resolution < 64 else 1] += 2.0
        return logits

    def keep(self) -> None:
        pass

    def finish(self) -> None:
        pass


class ScriptedEngine:
    """Builds networks in no time that is said to be `BUILD_MS`."""

    name = "scripted"
    device = "cpu"
    precisions = ("float",)

    def __init__(self, clock: SlowClock, may_build: threading.Event | None) -> None:
        self._clock = clock
        self._may_build = may_build

    def describe(self) -> dict[str, str]:
        return {}

    def build(self, point: OperatingPoint) -> ScriptedNetwork:
        assert self._may_build is None or self._may_build.wait(60)
        self._clock.advance(BUILD_MS)
        return ScriptedNetwork(point, self._clock)

    def cost(self, resolution: int, precision: str) -> Cost:
        return Cost(resolution**2, 1, 4)

    def close(self) -> None:
        pass


def write_bundle(path: Path) -> Path:
    torch.manual_seed(0)
    config = NetworkConfig("mobilenet_v2", (96, 64, 32), num_classes=len(CLASSES))
    accuracy = tuple(
        Accuracy(resolution=r, mode="proxy", top1=top1, top5=0.9, n=100, dataset="made up")
        for r, top1 in TOP1.items()
    )
    manifest = Manifest(name="tiny", network=config, classes=CLASSES, accuracy=accuracy)
    save(path, ScaleAdaptiveNetwork(config).eval(), manifest)
    return path


@contextmanager
def serving(
    settings: Settings,
    *,
    scripted: bool = True,
    ready: bool = True,
    may_build: threading.Event | None = None,
) -> Iterator[str]:
    """Serve until the block ends; gives the address, of a service that is ready or just begins."""
    if scripted:
        clock = SlowClock()
        service = make_service(settings, clock)
        service.bundles.choose_engine = lambda _: ScriptedEngine(clock, may_build)
    else:
        service = make_service(settings)
    config = server_config(make_app(settings, service), settings)
    if scripted:
        config.http = "httptools"  # so that a request begins on the service's own clock
    server = Server(config, service)
    listener = socket.create_server((settings.host, 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 180
        while not (server.started and (service.is_ready or not ready)):
            assert thread.is_alive(), service.failure
            assert service.failure is None
            assert time.monotonic() < deadline, "the service does not become ready"
            time.sleep(0.02)
        yield f"http://{settings.host}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=60)
        assert not thread.is_alive()
