"""`deploy/ray_serve.py` on a Ray cluster of one machine, started as its first lines say.

Ray is installed on demand into an environment of its own (see `benchmarks/peers`).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from benchmarks.peers.environments import ensure
from benchmarks.peers.registry import select
from benchmarks.processes import free_port
from tests.service.conftest import picture
from tests.waiting import until

pytestmark = pytest.mark.ray

ROOT = Path(__file__).parents[2]
URL = "http://127.0.0.1:8000"  # Ray Serve's own default
CLIENTS = 8
RESOLUTIONS = (224, 448)
"""Ray's proxy and the clients have the same cores: the larger one leaves more to the replicas."""
PHOTO = picture(500, 375)


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


class Cluster:
    """A node on loopback with two cores for replicas."""

    def __init__(self, folder: Path) -> None:
        (peer,) = select("ray")
        self._binaries = ensure(peer)
        self._folder = folder
        self._port = free_port()
        self._metrics_port = free_port()
        self._env = {
            **os.environ,
            "PATH": f"{self._binaries}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
            "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "deploy.ray_serve:proxy_middlewares",
            "SAN_RAY_CORES": "1",
            "SAN_CACHE_DIR": str(folder),
            "SAN_ACCESS_LOG": "0",
            "SAN_AGREEMENT_FRACTION": "0",
        }
        self._ray = self._start(
            "ray",
            *("ray", "start", "--head", "--block", "--include-dashboard", "false"),
            *("--node-ip-address", "127.0.0.1", "--port", str(self._port)),
            *("--min-worker-port", "0", "--max-worker-port", "0"),
            *("--metrics-export-port", str(self._metrics_port)),
            *("--num-cpus", "2", "--object-store-memory", str(100 << 20)),
        )

    def _start(self, name: str, *command: str, **env: str) -> subprocess.Popen[bytes]:
        program, *arguments = command
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [self._binaries / program, *arguments],
                env=self._env | env,
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @contextmanager
    def serving(self, replicas: int) -> Iterator[None]:
        """Run `serve run deploy.ray_serve:application` until the block ends."""
        serve = self._start(
            f"serve-{replicas}",
            *("serve", "run", "--address", f"127.0.0.1:{self._port}"),
            "deploy.ray_serve:application",
            SAN_RAY_MIN_REPLICAS=str(replicas),
            SAN_RAY_MAX_REPLICAS=str(replicas),
        )
        try:
            until(lambda: len(replicas_seen()) == replicas, serve, self.log)
            yield
        finally:
            stop(serve, signal.SIGINT)

    def metrics(self) -> str:
        """What Prometheus would be told by the node."""
        return httpx.get(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=10).text

    def log(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in self._folder.glob("*.log"))

    def close(self) -> None:
        stop(self._ray, signal.SIGTERM)


def replicas_seen() -> dict[str, int]:
    """Process ids by replica, as a few requests find them."""
    found = {}
    with httpx.Client(base_url=URL, timeout=10) as client:
        for _ in range(12):
            answer = client.get("/version")
            if answer.status_code == 200:
                found[answer.headers["x-san-replica"]] = answer.json()["worker"]["pid"]
    return found


class Load:
    """Clients in a closed loop; every request ends in an entry here."""

    def __init__(self, query: str = "") -> None:
        self.sent = 0
        self.outcomes: Counter[object] = Counter()
        self.replicas: Counter[str] = Counter()
        self.refusals: list[str] = []
        self.slowest_s = 0.0
        self._query = query
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask) for _ in range(CLIENTS)]

    def _ask(self) -> None:
        with httpx.Client(base_url=URL, timeout=60) as client:
            while not self._over.is_set():
                with self._lock:
                    self.sent += 1
                begun = time.monotonic()
                replica = None
                try:
                    answer = client.post(f"/classify{self._query}", content=PHOTO)
                    outcome: object = answer.status_code
                    if answer.status_code == 200:
                        assert answer.json()["predictions"]
                        replica = answer.headers["x-san-replica"]
                    else:
                        self.refusals.append(answer.text)
                except httpx.HTTPError as error:
                    outcome = type(error).__name__
                with self._lock:
                    self.outcomes[outcome] += 1
                    self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
                    if replica:
                        self.replicas[replica] += 1

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def goes_on(self, answers: int) -> None:
        seen = self.outcomes[200]
        until(lambda: self.outcomes[200] >= seen + answers)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("ray"))
    try:
        yield made
    finally:
        made.close()


def throughput(resolution: int, seconds: float = 10.0) -> tuple[float, Counter[str]]:
    """Answers per second at a resolution, and how the replicas shared them."""
    with Load(f"?resolution={resolution}") as load:
        load.goes_on(CLIENTS * 4)
        before, begun = Counter(load.replicas), time.monotonic()
        time.sleep(seconds)
        answered = Counter(load.replicas)
        took = time.monotonic() - begun
    assert set(load.outcomes) == {200}, load.refusals[:3]
    answered.subtract(before)
    return sum(answered.values()) / took, answered


def test_replicas_share_the_load_and_the_death_of_one_loses_nothing_silently(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster.serving(1):
        alone = {resolution: throughput(resolution)[0] for resolution in RESOLUTIONS}

    with cluster.serving(2):
        for resolution, one in alone.items():
            two, shares = throughput(resolution)
            with capsys.disabled():
                sys.stdout.write(
                    f"\n{resolution} px: {one:.0f}/s by one replica, {two:.0f}/s by two, "
                    f"{two / one:.2f} times; shares {sorted(shares.values())}"
                )
            assert len(shares) == 2
            assert min(shares.values()) > 0.25 * sum(shares.values())

        # A budget begins when the proxy sees the request, whatever the client claims: without the
        # proxy's own stamp this one would have begun 50 s ago.
        with httpx.Client(base_url=URL, timeout=60) as client:
            forged = {"x-san-received": f"{time.time() - 50:.6f}"}
            answer = client.post("/classify", content=PHOTO, headers=forged)
        assert answer.json()["timing_ms"]["total"] < 10_000

        before = replicas_seen()
        victim, pid = next(iter(before.items()))
        with Load() as load:
            load.goes_on(CLIENTS * 4)
            os.kill(pid, signal.SIGKILL)
            load.goes_on(CLIENTS * 20)
            until(lambda: len(set(replicas_seen()) - {victim}) == 2)
            seen = set(replicas_seen())
            load.goes_on(CLIENTS * 4)
        assert victim not in seen
        # Every request had an end, in time: an answer, or an error for what the dead one held.
        assert sum(load.outcomes.values()) == load.sent
        errors = {outcome: n for outcome, n in load.outcomes.items() if outcome != 200}
        with capsys.disabled():
            sys.stdout.write(f"\none killed: {load.outcomes[200]} answers, errors {errors}\n")
        assert set(errors) <= {500, 503, "RemoteProtocolError", "ReadError"}
        assert sum(errors.values()) <= CLIENTS
        assert load.slowest_s < 30


def test_ray_is_told_of_every_request(cluster: Cluster) -> None:
    with cluster.serving(1):
        answer = httpx.post(f"{URL}/classify?budget_ms=5000", content=PHOTO, timeout=60)
        assert answer.status_code == 200
        for name, label in (
            ("request_duration_seconds_count", 'outcome="answered"'),
            ("budgets_total", 'result="met"'),
            ("expected_accuracy_sum_total", ""),
        ):
            line = re.compile(rf"^ray_san_{name}\{{[^}}]*{label}", re.MULTILINE)
            until(lambda line=line: line.search(cluster.metrics()), log=cluster.metrics)
