"""A tiny bundle, and a real server on a real socket."""

from __future__ import annotations

import io
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from san_core.bundle import Accuracy, Manifest, save
from san_core.mode import Mode
from san_core.network.network_config import NetworkConfig
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from service.app import make_app, make_service
from service.engines.base import Engine
from service.engines.build_limits import BuildLimits
from service.http.connection.server import Server, server_config
from service.serving.service import Service
from service.settings import Settings

TRAINED = (96, 64, 32)
CLASSES = tuple(f"class {i}" for i in range(8))


def write_bundle(
    path: Path,
    *,
    name: str = "tiny",
    version: str = "1",
    seed: int = 0,
    evaluated: Sequence[int] = (32, 48, 64, 96),
) -> Path:
    """A bundle whose accuracy is made up and whose weights are random."""
    torch.manual_seed(seed)
    config = NetworkConfig("mobilenet_v2", TRAINED, num_classes=len(CLASSES))
    network = ScaleAdaptiveNetwork(config).eval()
    accuracy = tuple(
        Accuracy(resolution=r, mode=m, top1=r / 200, top5=r / 150, n=100, dataset="made up")
        for r in evaluated
        for m in (Mode.PROXY, Mode.DATA_FREE)
    )
    manifest = Manifest(
        name=name, version=version, network=config, classes=CLASSES, accuracy=accuracy
    )
    save(path, network, manifest)
    return path


def picture(width: int = 120, height: int = 90, image_format: str = "JPEG", seed: int = 0) -> bytes:
    """A picture with something in it."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    out = io.BytesIO()
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    image.save(out, image_format)
    return out.getvalue()


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


@dataclass
class Running:
    """A server that listens."""

    url: str
    service: Service
    server: Server

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def client(self, **options: object) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=240, **options)


@contextmanager
def serving(
    settings: Settings, *, ready: bool = True, engine: Engine | None = None
) -> Iterator[Running]:
    """Run a server in a thread until the block ends, perhaps with an engine of the test's own."""
    service = make_service(settings)
    if engine is not None:
        service.bundles.choose_engine = lambda _: engine
    server = Server(server_config(make_app(settings, service), settings), service)
    listener = socket.create_server((settings.host, 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 240  # a shared machine may be slow to import and measure
        while not (server.started and (service.is_ready or not ready)):
            assert thread.is_alive(), service.failure
            assert time.monotonic() < deadline, service.failure
            time.sleep(0.02)
        yield Running(f"http://{settings.host}:{listener.getsockname()[1]}", service, server)
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundle") / "tiny.safetensors")


@pytest.fixture
def own_bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A bundle that the test may replace."""
    return Path(shutil.copy(tiny_bundle, tmp_path))


@pytest.fixture(scope="session")
def make_settings(
    tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Settings]:
    """Settings for a quick server; latencies are measured once per session."""
    kept = tmp_path_factory.mktemp("latencies")

    def make(**changes: object) -> Settings:
        options: dict[str, object] = {
            "bundle": tiny_bundle,
            "cache_dir": kept,
            "engine": "torch",
            "formats": ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF"),
            "engine_threads": 1,
            "decode_threads": 1,
            "device": "cpu",
            "max_batch": 4,
            "access_log": False,
            "agreement_fraction": 0.0,
            # A test machine is slow and shared: what is tested here is not its speed.
            "patience_ms": 60_000,
        }
        return Settings(**(options | changes))

    return make


@pytest.fixture(scope="session")
def running(make_settings: Callable[..., Settings]) -> Iterator[Running]:
    with serving(make_settings()) as server:
        yield server


@pytest.fixture
def client(running: Running) -> Iterator[httpx.Client]:
    # What a client may have built in a minute is not shared with the tests before.
    deployment = running.service.deployment
    if deployment is not None:
        deployment._build_limits = BuildLimits(running.service.clock)
    with running.client() as client:
        yield client
