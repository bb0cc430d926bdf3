"""Our own service as a child process, started as a user would start it."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.driving.wire import Client, get, post
from benchmarks.servers.processes import Server, free_port

START_SECONDS = 420.0


@dataclass(frozen=True)
class Point:
    """An operating point as `/resolutions` tells it."""

    resolution: int
    mode: str
    precision: str
    accuracy: float | None
    frontier: bool
    smallest_budget_ms: float

    @property
    def name(self) -> str:
        """Short, for tables."""
        return f"{self.resolution} {self.mode} {self.precision}"


class OurService(Server):
    """`san serve` on a free port, with anything but problems kept out of its log.

    It measures this host afresh: what an earlier run left, perhaps on a busy machine, is not used.
    """

    def __init__(
        self, bundle: Path | None = None, options: Sequence[str] = (), name: str = "san-serve"
    ) -> None:
        port = free_port()
        self.bundle = bundle
        self._measured = Path(tempfile.mkdtemp(prefix="san-serve-measured-"))
        command = [sys.executable, "-m", "san_cli", "serve", "--port", str(port)]
        command += ["--host", "127.0.0.1", "--log-level", "warning"]
        command += ["--cache-dir", str(self._measured), *options]
        if bundle is not None:
            command += ["--bundle", str(bundle)]
        super().__init__(name, command, port)

    def await_ready(self, complete_s: float = START_SECONDS) -> OurService:
        """Wait until it is complete: ready, every point of its frontier built and measured.

        With little memory it never is: `complete_s` bounds the wait after ready.
        """
        self.await_answer("/readyz", START_SECONDS)
        deadline = time.monotonic() + complete_s
        while time.monotonic() < deadline:
            points = self.ask("/resolutions")["operating_points"]
            if all(x["cached"] and x["measured"] for x in points if x["frontier"]):
                break
            time.sleep(0.5)
        self.await_idle(0.1)
        return self

    def stop(self, grace_s: float = 10.0) -> None:
        """Stop it, and forget what it measured."""
        super().stop(grace_s)
        shutil.rmtree(self._measured, ignore_errors=True)

    def ask(self, path: str) -> Any:
        """GET some JSON."""
        with Client(self.port) as client:
            return client.send(get(path)).json()

    def points(self) -> list[Point]:
        """Every operating point, most accurate first."""
        found = [
            Point(
                entry["resolution"],
                entry["mode"],
                entry["precision"],
                entry["accuracy"] and entry["accuracy"]["top1"],
                entry["frontier"],
                entry["smallest_budget_ms"],
            )
            for entry in self.ask("/resolutions")["operating_points"]
        ]
        return sorted(found, key=lambda point: -(point.accuracy or 0.0))

    def best(self) -> Point:
        """The most accurate point of the frontier."""
        return next(point for point in self.points() if point.frontier)


def classify(body: bytes, **query: object) -> bytes:
    """A request to `/classify`."""
    pairs = "&".join(f"{name}={value}" for name, value in query.items() if value is not None)
    return post(f"/classify?{pairs}" if pairs else "/classify", body)
