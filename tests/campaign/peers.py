"""`python -m tests.campaign.peers [SERVER,…]`: what the campaign's files do to other servers.

Each server has two cores and 4 GB, as ours. Each file is sent once (a WebP also twice at once)
while a polite client asks for a photograph ten times a second. Triton is the real server, which the
wheel of `nvidia-pytriton` has in it. Needs root, for the limit on memory.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.driving.photo import photo
from benchmarks.driving.wire import Client, form
from benchmarks.driving.wire import post as http_post
from benchmarks.peers.environments import DEFAULT_DIRECTORY
from benchmarks.peers.export import export_network
from benchmarks.peers.registry import PeerEngine, Setup, select
from benchmarks.peers.running import PeerServer
from benchmarks.peers.triton import Triton, triton_request
from benchmarks.servers.our_service import OurService
from benchmarks.servers.processes import Server
from san_core.bundle import load
from service.engines.openvino.cpu_probe import probe
from service.engines.openvino.engine import user_cache
from tests.campaign.images import attack

FILES = (
    "webp of 28 bytes",
    "two webps of 28 bytes",
    "bmp of runs",
    "jpeg of exif segments",
    "ppm of comments",
    "pgm with an odd range",
    "tiff of directories",
    "tiff with a huge tile",
    "png of 16 bits",
    "jpeg of scans",
)
_FORMATS = "JPEG,PNG,WEBP,GIF,BMP,TIFF,PPM,AVIF"
_GROUP = Path("/sys/fs/cgroup/memory")
_LIMIT = 4_000_000_000
_AFTER_S, _LONGEST_S = 2.0, 25.0
_STANDSTILL_S = 3.0
"""Without a process of ours running: a file that was sent then is sent again."""
_SETTLE_S = 6.0
"""For what a server does after its first answer."""
_CACHE = user_cache()


@contextmanager
def limited() -> Iterator[Path]:
    """A group of 4 GB."""
    group = _GROUP / f"san-peers-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(_LIMIT))
    try:
        yield group
    finally:
        time.sleep(0.5)
        group.rmdir()


def within(group: Path) -> list[str]:
    """What a command is put behind to run in a group."""
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]


class Polite:
    """Asks ten times a second, on a connection of its own each time."""

    def __init__(self, port: int, request: bytes) -> None:
        self._port, self._request = port, request
        self._over = threading.Event()
        self.seconds: list[float] = []
        self.lost = 0
        self.longest_pause_s = 0.0
        """Between two requests: more than the period only if the machine stood still."""

    def run(self, until: Callable[[], bool]) -> None:
        """Until something is over; each request in a thread of its own."""
        threads, last = [], time.monotonic()
        while not until():
            now = time.monotonic()
            self.longest_pause_s, last = max(self.longest_pause_s, now - last), now
            threads.append(threading.Thread(target=self._ask, daemon=True))
            threads[-1].start()
            time.sleep(0.1)
        for thread in threads:
            thread.join(_LONGEST_S)

    def _ask(self) -> None:
        begun = time.perf_counter()
        try:
            with Client(self._port, timeout_s=_LONGEST_S) as client:
                status = client.send(self._request).status
        except (OSError, ValueError):
            status = 0
        if status == 200:
            self.seconds.append(time.perf_counter() - begun)
        else:
            self.lost += 1

    def told(self) -> dict[str, float]:
        """What it saw."""
        ordered = sorted(self.seconds) or [float("nan")]
        worst = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
        asked = len(self.seconds) + self.lost
        return {
            "polite_answered": len(self.seconds) / max(1, asked),
            "polite_p99_ms": 1000 * worst,
        }


def send(server: Server, request: Callable[[bytes], bytes], name: str) -> dict[str, Any]:
    """Send one file; how long it took, what came, and what the polite client saw meanwhile."""
    twice = name.startswith("two ")
    image = attack("webp of 28 bytes" if twice else name)
    statuses: list[int] = []

    def once() -> None:
        try:
            with Client(server.port, timeout_s=_LONGEST_S) as client:
                statuses.append(client.send(request(image)).status)
        except (OSError, ValueError):
            statuses.append(0)

    polite = Polite(server.port, request(photo()))
    cpu, begun = server.cpu_s(), time.monotonic()
    senders = [threading.Thread(target=once) for _ in range(2 if twice else 1)]
    for sender in senders:
        sender.start()
    took: list[float] = []

    def over() -> bool:
        if not took and not any(sender.is_alive() for sender in senders):
            took.append(time.monotonic() - begun)
        return bool(took) and time.monotonic() > begun + took[0] + _AFTER_S

    polite.run(over)
    return {
        "stood_still": polite.longest_pause_s > _STANDSTILL_S,
        "statuses": statuses,
        "took_s": took[0],
        "cpu_s": server.cpu_s() - cpu,
        **polite.told(),
    }


REQUESTS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "ours": ("san-serve", lambda body: http_post("/classify?budget_ms=50", body)),
    "fastapi": ("FastAPI", lambda body: form("/classify", "image", body)),
    "triton": ("Triton, Python backend", triton_request),
    "bentoml": (
        "BentoML",
        lambda body: http_post("/classify", body, {"Content-Type": "image/jpeg"}),
    ),
}
"""By name: a title, and how an image is sent."""


def main() -> None:
    """Run the servers one after the other; print a JSON line per file, then the whole table."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.peers", description=__doc__)
    parser.add_argument("servers", nargs="?", default=",".join(REQUESTS), help="all by default")
    names = parser.parse_args().servers.split(",")
    if unknown := set(names) - set(REQUESTS):
        parser.error(f"there is no {unknown.pop()!r}; have {', '.join(REQUESTS)}")
    columns = [dict(attacked(name)) for name in names]
    print("| file |", " | ".join(REQUESTS[name][0] for name in names), "|")
    print("|---|" + "---|" * len(names))
    for file in FILES:
        print(f"| {file} |", " | ".join(cell(column[file]) for column in columns), "|")


def attacked(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each file did to one server, started again wherever it was killed."""
    request = REQUESTS[name][1]
    with tempfile.TemporaryDirectory() as folder, limited() as group:
        export = Path(folder)
        env = {} if name == "ours" else export_network(load(), 224, export, probe(_CACHE))
        server: Server | None = None
        try:
            for file in FILES:
                if server is None or server.is_over:
                    if server is not None:
                        server.stop()
                    server = made(name, env, export)
                    server._command = [*within(group), *server._command]
                    server.start()
                    server.await_answer(request(photo()), 120.0)
                    time.sleep(_SETTLE_S)
                before = int((group / "memory.oom_control").read_text().split()[-1])
                (group / "memory.max_usage_in_bytes").write_text("0")
                while (found := send(server, request, file))["stood_still"]:
                    print(f"{name}: the machine stood still; {file} is sent again", flush=True)
                    server.await_answer(request(photo()), 120.0)
                found["peak_mb"] = int((group / "memory.max_usage_in_bytes").read_text()) / 1e6
                killed = int((group / "memory.oom_control").read_text().split()[-1]) - before
                found["killed"] = killed
                print(json.dumps({"server": name, "file": file, **found}), flush=True)
                yield file, found
        finally:
            if server is not None:
                server.stop()


def cell(found: dict[str, Any]) -> str:
    """One server's reaction to one file, as the documentation shows it."""
    statuses = {"no answer" if not status else str(status) for status in found["statuses"]}
    killed = "; killed for memory" if found["killed"] else ""
    asked = (
        f"{', '.join(sorted(statuses))}, {found['took_s']:.1f} s ({found['cpu_s']:.1f} s of CPU)"
    )
    memory = f"{found['peak_mb'] / 1000:.1f} GB"
    others = f"others {found['polite_answered']:.0%}"
    if found["polite_answered"] > 0.01:
        others += f", p99 {found['polite_p99_ms']:.0f} ms"
    return f"{asked}, {memory}{killed}; {others}"


def made(name: str, env: dict[str, str], export: Path) -> Server:
    """A server, not yet started."""
    if name == "ours":
        return OurService(options=["--formats", _FORMATS])
    if name == "triton":
        return Triton(env, export)
    peer = select(name)[0]
    return PeerServer(peer, PeerEngine.OPENVINO, Setup.LATENCY, export, env, DEFAULT_DIRECTORY)


if __name__ == "__main__":
    main()
