"""How each peer is installed, started, asked and probed; one entry each."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from benchmarks.driving.wire import form, post
from benchmarks.servers.processes import free_port

HERE = Path(__file__).parent


class PeerEngine(StrEnum):
    """What runs the network inside a peer."""

    EAGER = "eager"
    OPENVINO = "openvino"


class Setup(StrEnum):
    """How a peer uses the machine."""

    LATENCY = "latency"
    """One worker with every core: the fastest single answer."""
    THROUGHPUT = "throughput"
    """A worker per core with one thread each: the most answers."""


@dataclass(frozen=True)
class Peer:
    """One way to serve a network."""

    name: str
    title: str
    requirements: tuple[str, ...]
    command: tuple[str, ...]
    """Run in a directory of its own with the environment's `bin` in front; {port} is filled in."""
    request: Callable[[bytes], bytes] = field(default=lambda body: post("/classify", body))
    start_seconds: float = 300.0

    def files(self, port: int, workers: int) -> dict[str, str]:
        """Configuration files it wants in its working directory."""
        return _FILES[self.name](port, workers) if self.name in _FILES else {}


def _mlserver(port: int, workers: int) -> dict[str, str]:
    settings = {
        "debug": False,
        "host": "127.0.0.1",
        "http_port": port,
        "grpc_port": free_port(),
        "metrics_endpoint": None,
        "parallel_workers": workers if workers > 1 else 0,
    }
    model = {"name": "classify", "implementation": "mlserver_service.Classify"}
    return {"settings.json": json.dumps(settings), "model-settings.json": json.dumps(model)}


_FILES = {"mlserver": _mlserver}

PEERS = (
    Peer(
        "fastapi",
        "FastAPI",
        ("fastapi==0.162.4", "uvicorn[standard]", "python-multipart", "pillow"),
        ("python", str(HERE / "fastapi_service.py")),
        request=lambda body: form("/classify", "image", body),
    ),
    Peer(
        "mosec",
        "Mosec",
        ("mosec==0.9.8", "pillow"),
        ("python", str(HERE / "mosec_service.py")),
        request=lambda body: post("/inference", body),
    ),
    Peer(
        "litserve",
        "LitServe",
        ("litserve==0.2.19", "python-multipart", "pillow"),
        ("python", str(HERE / "litserve_service.py")),
        request=lambda body: form("/classify", "image", body),
    ),
    Peer(
        "bentoml",
        "BentoML",
        ("bentoml==1.4.39", "pillow"),
        ("bentoml", "serve", "bentoml_service:Classify", "--port", "{port}", "--host", "127.0.0.1"),
    ),
    Peer(
        "mlserver",
        "MLServer",
        # Its workers ask for an event loop in a way that uvloop 0.22 and later refuse.
        ("mlserver==1.7.1", "uvloop<0.22", "pillow"),
        ("mlserver", "start", "."),
    ),
    Peer(
        "ray",
        "Ray Serve",
        ("ray[serve]==2.60.0", "pillow"),
        ("python", str(HERE / "ray_service.py")),
    ),
)
"""Every peer, in the order of the tables."""


def select(names: str) -> list[Peer]:
    """The peers of a comma-separated list; `all` for all."""
    if names == "all":
        return list(PEERS)
    known = {peer.name: peer for peer in PEERS}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise SystemExit(f"No peer {unknown[0]!r}; known are {', '.join(known)}.")
    return [known[name] for name in wanted]
