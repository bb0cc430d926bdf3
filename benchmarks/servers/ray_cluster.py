"""A Ray cluster on loopback that serves `deploy/ray_serve/serve.yaml`."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from benchmarks.peers.environments import ensure
from benchmarks.peers.registry import select
from benchmarks.servers.processes import free_port

ROOT = Path(__file__).parents[2]
SERVE_FILE = ROOT / "deploy" / "ray_serve" / "serve.yaml"
DEFAULT_ROUTER = "ray.serve._private.request_router.pow_2_router:PowerOfTwoChoicesRequestRouter"
_START_S = 300.0
_ATTEMPTS = 3


def stop(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """End one process, and whatever it has started in its group."""
    if process.poll() is None:
        process.send_signal(number)
    try:
        process.wait(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@dataclass(frozen=True)
class Node:
    """How many cores it has for replicas, and the core of this machine that it never leaves."""

    cores: int = 2
    kept_on: int | None = None


class Cluster:
    """Nodes on loopback, the first with the proxy. Ray is installed on demand."""

    def __init__(self, folder: Path, nodes: Sequence[Node] = (Node(),)) -> None:
        (peer,) = select("ray")
        self._binaries = ensure(peer)
        self._folder = folder
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SAN_")},
            "PATH": f"{self._binaries}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
            "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "deploy.ray_serve.proxy:middlewares",
        }
        self._nodes: list[subprocess.Popen[bytes]] = []
        for node in nodes:
            self._add(node)

    def _add(self, node: Node) -> None:
        for _ in range(_ATTEMPTS):
            if not self._nodes:
                self._port, self._http_port = free_port(), free_port()
                self.url = f"http://127.0.0.1:{self._http_port}"
                self._metrics_port = free_port()
            name = f"ray-{len(self._nodes)}"
            started = self._start_node(name, node)
            if self._is_up(name, started):
                self._nodes.append(started)
                return
        raise RuntimeError(f"Ray did not start:\n{self.log()}")

    def _start_node(self, name: str, node: Node) -> subprocess.Popen[bytes]:
        first = (
            *("--head", "--include-dashboard", "false", "--port", str(self._port)),
            *("--metrics-export-port", str(self._metrics_port)),
        )
        return self._start(
            name,
            *("ray", "start", "--block", "--node-ip-address", "127.0.0.1"),
            *(("--address", f"127.0.0.1:{self._port}") if self._nodes else first),
            *("--min-worker-port", "0", "--max-worker-port", "0"),
            *("--num-cpus", str(node.cores), "--object-store-memory", str(100 << 20)),
            core=node.kept_on,
        )

    def _is_up(self, name: str, node: subprocess.Popen[bytes]) -> bool:
        """Whether a node started; it ends by itself if another process took one of its ports."""
        deadline = time.monotonic() + _START_S
        while node.poll() is None and time.monotonic() < deadline:
            if "Ray runtime started" in (self._folder / f"{name}.log").read_text():
                return True
            time.sleep(0.2)
        stop(node, signal.SIGTERM)
        return False

    def _start(self, name: str, *command: str, core: int | None = None) -> subprocess.Popen[bytes]:
        program, *arguments = command

        def prepare() -> None:
            # Where a shell starts us in the background it is ignored, and Ray needs it to stop.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if core is not None:
                os.sched_setaffinity(0, {core})

        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [self._binaries / program, *arguments],
                env=self._env,
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=prepare,
            )

    @contextmanager
    def serving(self, replicas: int, most: int | None = None, **args: Any) -> Iterator[None]:
        """Serve the project's Serve file, with other sizes, until the block ends."""
        config = yaml.safe_load(SERVE_FILE.read_text())
        config["proxy_location"] = "HeadOnly"  # all nodes have one address
        config["http_options"] |= {"host": "127.0.0.1", "port": self._http_port}
        (application,) = config["applications"]
        settings = {
            "SAN_CACHE_DIR": str(self._folder),
            "SAN_ACCESS_LOG": "0",
            "SAN_AGREEMENT_FRACTION": "0",
        } | args.pop("settings", {})
        application["args"] |= {
            "cores": 1,
            "min_replicas": replicas,
            "max_replicas": most or replicas,
            "settings": settings,
            **args,
        }
        file = self._folder / "serve.yaml"
        file.write_text(yaml.safe_dump(config))
        serve = self._start(
            "serve", "serve", "run", "--address", f"127.0.0.1:{self._port}", str(file)
        )
        try:
            deadline = time.monotonic() + _START_S
            while len(self.replicas()) < replicas:
                failed = "DEPLOY_FAILED" in self.log() or serve.poll() is not None
                if failed or time.monotonic() > deadline:
                    raise RuntimeError(f"Ray did not serve:\n{self.log()}")
                time.sleep(0.5)
            yield
        finally:
            stop(serve, signal.SIGINT)

    def replicas(self) -> dict[str, int]:
        """Process ids by replica, as a few requests find them."""
        found = {}
        try:
            with httpx.Client(base_url=self.url, timeout=10) as client:
                for _ in range(16):
                    answer = client.get("/version")
                    if answer.status_code == 200:
                        found[answer.headers["x-san-replica"]] = answer.json()["pid"]
        except httpx.HTTPError:
            return {}
        return found

    def python(self, code: str) -> str:
        """What some code prints in Ray's environment."""
        command = [self._binaries / "python", "-c", code]
        done = subprocess.run(
            command, env=self._env, cwd=ROOT, capture_output=True, text=True, check=True
        )
        return done.stdout

    def metrics(self) -> str:
        """What Prometheus would be told by the node."""
        return httpx.get(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=10).text

    def log(self) -> str:
        """The ends of all logs."""
        return "\n".join(path.read_text()[-3000:] for path in self._folder.glob("*.log"))

    def close(self) -> None:
        """Stop the nodes."""
        for node in reversed(self._nodes):
            stop(node, signal.SIGTERM)
