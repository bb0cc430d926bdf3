"""The container engine and the compose stack, as the tests use them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
STATE = Path(os.environ.get("SAN_DOCKER_STATE", "/var/tmp/san-docker"))


def run(*command: str, env: dict[str, str], timeout: float = 600, check: bool = True) -> str:
    """Run a command and return what it said; what it said is in the failure, too."""
    done = subprocess.run(
        command, env=env, cwd=ROOT, timeout=timeout, text=True, stdout=-1, stderr=-2, check=False
    )
    assert done.returncode == 0 or not check, f"{' '.join(command)}\n{done.stdout[-6000:]}"
    return done.stdout


@dataclass
class Engine:
    """A Docker engine that answers; started by us where there was none."""

    env: dict[str, str]
    ours: bool = False

    @classmethod
    def find(cls) -> Engine:
        """The engine of this machine, or one that is installed and started now."""
        env = dict(os.environ)
        if _answers(env):
            return cls(env)
        assert os.geteuid() == 0, "No container engine answers, and only root can start one."
        run(str(HERE / "install_engine.sh"), str(STATE), env=env)
        run(str(HERE / "engine.sh"), "start", str(STATE), env=env, timeout=60)
        env |= {
            "DOCKER_HOST": f"unix://{STATE}/docker.sock",
            "DOCKER_CONFIG": str(STATE / "config"),
        }
        assert _answers(env)
        return cls(env, ours=True)

    def close(self) -> None:
        """Stop what we started."""
        if self.ours:
            run(str(HERE / "engine.sh"), "stop", str(STATE), env=self.env, timeout=120)

    def docker(self, *arguments: str, timeout: float = 600, check: bool = True) -> str:
        return run("docker", *arguments, env=self.env, timeout=timeout, check=check)

    def has(self, image: str) -> bool:
        return bool(self.docker("image", "ls", "-q", image).strip())

    def provide(self, image: str, stand_in: str | None) -> str | None:
        """The name under which an image is there: pulled, or a stand-in, which has no digest."""
        if self.has(image):
            return image
        self.docker("pull", "-q", image, check=False)
        if self.has(image):
            return image
        plain = image.partition("@")[0]
        if not self.has(plain) and stand_in:
            run(str(HERE / "stand_in_images.sh"), stand_in, plain, env=self.env, timeout=1800)
        return plain if self.has(plain) else None


def _answers(env: dict[str, str]) -> bool:
    if not shutil.which("docker"):
        return False
    return all(
        subprocess.run(["docker", *words], env=env, capture_output=True, check=False).returncode
        == 0
        for words in (["info"], ["compose", "version"])
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _with_stand_ins(images: dict[str, str], folder: Path) -> Path:
    """A compose file that puts other names of images in place of the pinned ones."""
    services: dict[str, Any] = {}
    for service, known in COMPOSE["services"].items():
        if known["image"] in images:
            services[service] = {"image": images[known["image"]]}
        if "build" in known:
            source = ROOT / known["build"]["dockerfile"]
            text = source.read_text()
            for pinned, name in images.items():
                text = text.replace(pinned, name)
            (folder / source.name).write_text(text)
            services[service] = {"build": {"dockerfile": str(folder / source.name)}}
    path = folder / "stand-ins.yml"
    path.write_text(yaml.safe_dump({"services": services}))
    return path


@dataclass
class Stack:
    """The compose file, brought up under a name of its own."""

    engine: Engine
    settings: dict[str, str] = field(default_factory=dict)
    services: tuple[str, ...] = ("service", "prometheus", "grafana")
    project: str = field(default_factory=lambda: f"san-test-{os.getpid()}")
    images: dict[str, str] = field(default_factory=dict)
    """Pinned images and the names under which they are there."""

    def __post_init__(self) -> None:
        self.files = ["docker-compose.yml"]
        if any(name != pinned for pinned, name in self.images.items()):
            folder = Path(tempfile.mkdtemp(prefix="san-stand-ins-"))
            self.files.append(str(_with_stand_ins(self.images, folder)))
        self.ports = {name: free_port() for name in ("service", "prometheus", "grafana")}
        self.env = {
            **self.engine.env,
            "SAN_PUBLISH": f"127.0.0.1:{self.ports['service']}",
            "PROMETHEUS_PORT": str(self.ports["prometheus"]),
            "GRAFANA_PORT": str(self.ports["grafana"]),
            **self.settings,
        }

    def compose(self, *arguments: str, timeout: float = 600, check: bool = True) -> str:
        files = (word for name in self.files for word in ("-f", name))
        command = ("docker", "compose", "-p", self.project, *files, *arguments)
        return run(*command, env=self.env, timeout=timeout, check=check)

    def url(self, service: str, path: str = "") -> str:
        return f"http://127.0.0.1:{self.ports[service]}{path}"

    def get(self, service: str, path: str, **query: object) -> Any:
        tail = f"?{urllib.parse.urlencode(query)}" if query else ""
        with urllib.request.urlopen(self.url(service, path) + tail, timeout=60) as answer:
            return json.loads(answer.read())

    def container(self, service: str) -> dict[str, Any]:
        number = self.compose("ps", "-a", "-q", service).split()[-1]
        found: dict[str, Any] = json.loads(self.engine.docker("inspect", number))[0]
        return found

    def query(self, expr: str, start: float, end: float, step: float = 5) -> list[dict[str, Any]]:
        """The series that an expression has in a range of time."""
        try:
            answer = self.get(
                "prometheus", "/api/v1/query_range", query=expr, start=start, end=end, step=step
            )
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expr}\n{error.read().decode()}") from error
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found
