"""Triton with its Python backend: the real server, as the wheel of `nvidia-pytriton` has it.

It can be told to shed: its dynamic batcher then refuses what has waited too long.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.driving.wire import post
from benchmarks.peers.environments import DEFAULT_DIRECTORY, ensure
from benchmarks.peers.registry import HERE, Peer, Setup
from benchmarks.servers.processes import Server, free_port


def triton_request(image: bytes) -> bytes:
    """A request of the Open Inference Protocol with the image as binary."""
    raw = struct.pack("<I", len(image)) + image
    tensor = {
        "name": "image",
        "datatype": "BYTES",
        "shape": [1, 1],
        "parameters": {"binary_data_size": len(raw)},
    }
    text = json.dumps({"inputs": [tensor]}).encode()
    headers = {
        "Inference-Header-Content-Length": str(len(text)),
        "Content-Type": "application/octet-stream",
    }
    return post("/v2/models/classify/infer", text + raw, headers)


TRITON = Peer(
    "triton",
    "Triton",
    # Its Python backend was built for the layout of numpy's arrays before version 2.
    ("nvidia-pytriton==0.7.0", "numpy<2", "pillow"),
    command=(),
    request=triton_request,
)


def model_config(instances: int, longest_wait_ms: float | None) -> str:
    """The model's `config.pbtxt`; with a longest wait, what waited longer is refused."""
    shedding = (
        ""
        if longest_wait_ms is None
        else "dynamic_batching { default_queue_policy { timeout_action: REJECT "
        f"default_timeout_microseconds: {round(1000 * longest_wait_ms)} }} }}\n"
    )
    return (
        'name: "classify"\nbackend: "python"\nmax_batch_size: 1\n'
        'input [{ name: "image" data_type: TYPE_STRING dims: [1] }]\n'
        'output [{ name: "predictions" data_type: TYPE_STRING dims: [1] }]\n'
        f"instance_group [{{ kind: KIND_CPU count: {instances} }}]\n{shedding}"
    )


class Triton(Server):
    """Triton with its Python backend."""

    def __init__(
        self,
        env: dict[str, str],
        export: Path,
        setup: Setup = Setup.LATENCY,
        longest_wait_ms: float | None = None,
        directory: Path = DEFAULT_DIRECTORY,
    ) -> None:
        cores = os.cpu_count() or 1
        instances = cores if setup is Setup.THROUGHPUT else 1
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        wheel = ensure(TRITON, directory).parent / "lib" / f"python{version}" / "site-packages"
        self._home = Path(tempfile.mkdtemp(prefix="peer-triton-"))
        backends = self._home / "backends" / "python"
        shutil.copytree(wheel / "pytriton/tritonserver/backends/python", backends)
        stubs = wheel / "pytriton/tritonserver/python_backend_stubs" / version
        shutil.copy(stubs / "triton_python_backend_stub", backends)
        (backends / "triton_python_backend_stub").chmod(0o755)
        model = self._home / "models" / "classify"
        (model / "1").mkdir(parents=True)
        shutil.copy(HERE / "triton_model.py", model / "1" / "model.py")
        (model / "config.pbtxt").write_text(model_config(instances, longest_wait_ms))
        port = free_port()
        command = [
            str(wheel / "pytriton/tritonserver/bin/tritonserver"),
            f"--model-repository={self._home / 'models'}",
            f"--backend-directory={self._home / 'backends'}",
            f"--http-port={port}",
            "--http-address=127.0.0.1",
            "--allow-grpc=false",
            "--allow-metrics=false",
        ]
        ours = (wheel / "fallback.pth").read_text().strip()  # OpenVINO
        super().__init__(
            f"Triton ({setup})",
            command,
            port,
            env={
                **env,
                "LD_LIBRARY_PATH": str(wheel / "nvidia_pytriton.libs"),
                "PEER_PATH": f"{HERE}:{wheel}:{ours}",
                "PEER_EXPORT": str(export),
                "PEER_THREADS": str(max(1, cores // instances)),
            },
        )

    def await_ready(self, request: bytes) -> Triton:
        """Wait until it classifies and all its instances have started."""
        self.await_answer(request, TRITON.start_seconds)
        self.await_idle()
        return self

    def stop(self, grace_s: float = 10.0) -> None:
        """Stop it, and remove its working directory."""
        super().stop(grace_s)
        shutil.rmtree(self._home, ignore_errors=True)


def triton_label(answer: dict[str, Any]) -> str:
    """The best class of an answer; empty if it is none."""
    outputs = answer.get("outputs")
    return str(json.loads(outputs[0]["data"][0])[0]["label"]) if outputs else ""
