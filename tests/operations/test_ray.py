"""`deploy/ray_serve` on a Ray cluster of one machine, by its own Serve file.

Ray is installed on demand into an environment of its own (see `benchmarks/peers`).
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks.servers.ray_cluster import Cluster
from tests.service.conftest import picture, write_bundle
from tests.waiting import until

pytestmark = pytest.mark.ray

CLIENTS = 8
RESOLUTIONS = (224, 448)
"""Ray's proxy and the clients have the same cores: the larger one leaves more to the replicas."""
PHOTO = picture(500, 375)


class Load:
    """Clients in a closed loop; every request ends in an entry here."""

    def __init__(self, url: str, query: str = "", clients: int = CLIENTS) -> None:
        self.sent = 0
        self.outcomes: Counter[object] = Counter()
        self.replicas: Counter[str] = Counter()
        self.refusals: list[httpx.Response] = []
        self.slowest_s = 0.0
        self._url = url
        self._query = query
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as client:
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
                        self.refusals.append(answer)
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


def throughput(url: str, resolution: int, seconds: float = 8.0) -> tuple[float, Counter[str]]:
    """Answers per second at a resolution, and how the replicas shared them."""
    with Load(url, f"?resolution={resolution}") as load:
        load.goes_on(CLIENTS * 4)
        before, begun = Counter(load.replicas), time.monotonic()
        time.sleep(seconds)
        answered = Counter(load.replicas)
        took = time.monotonic() - begun
    assert set(load.outcomes) == {200}, [r.text for r in load.refusals[:3]]
    answered.subtract(before)
    return sum(answered.values()) / took, answered


def test_replicas_share_the_load_and_the_death_of_one_loses_nothing_silently(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster.serving(1):
        alone = {resolution: throughput(cluster.url, resolution)[0] for resolution in RESOLUTIONS}

    with cluster.serving(2):
        for resolution, one in alone.items():
            two, shares = throughput(cluster.url, resolution)
            with capsys.disabled():
                sys.stdout.write(
                    f"\n{resolution} px: {one:.0f}/s by one replica, {two:.0f}/s by two, "
                    f"{two / one:.2f} times; shares {sorted(shares.values())}"
                )
            assert len(shares) == 2
            assert min(shares.values()) > 0.1 * sum(shares.values())

        # A budget begins when the proxy sees the request, whatever the client claims: without the
        # proxy's own stamp this one would have begun 50 s ago.
        forged = {"x-san-received": f"{time.time() - 50:.6f}"}
        answer = httpx.post(f"{cluster.url}/classify", content=PHOTO, headers=forged, timeout=60)
        assert answer.json()["timing_ms"]["total"] < 10_000

        victim, pid = next(iter(cluster.replicas().items()))
        with Load(cluster.url) as load:
            load.goes_on(CLIENTS * 4)
            os.kill(pid, signal.SIGKILL)
            load.goes_on(CLIENTS * 20)
            until(lambda: len(set(cluster.replicas()) - {victim}) == 2)
            load.goes_on(CLIENTS * 4)
        # Every request had an end, in time: an answer, or a problem for what the dead one held.
        assert sum(load.outcomes.values()) == load.sent
        errors = {outcome: n for outcome, n in load.outcomes.items() if outcome != 200}
        with capsys.disabled():
            sys.stdout.write(f"\none killed: {load.outcomes[200]} answers, errors {errors}\n")
        assert set(errors) <= {429, 503}, [r.text for r in load.refusals[:3]]
        assert sum(errors.values()) <= 2 * CLIENTS
        for refusal in load.refusals:
            assert refusal.headers["content-type"] == "application/problem+json"
            assert refusal.json()["detail"]
        assert load.slowest_s < 30


def test_ray_is_told_of_every_request_and_of_every_replica(cluster: Cluster) -> None:
    with cluster.serving(1, settings={"SAN_MAX_BATCH": "4", "SAN_PRECISION": "float"}):
        answer = httpx.post(f"{cluster.url}/classify?budget_ms=5000", content=PHOTO, timeout=60)
        assert answer.status_code == 200
        assert answer.json()["precision"] == "float"
        assert httpx.get(f"{cluster.url}/resolutions").json()["max_batch"] == 4
        for name, label in (
            ("request_duration_seconds_count", 'outcome="answered"'),
            ("budgets_total", 'result="met"'),
            ("expected_accuracy_sum_total", ""),
            ("ready", ""),
            ("inflight_requests", ""),
        ):
            line = re.compile(rf"^ray_san_{name}\{{[^}}]*{label}", re.MULTILINE)
            until(lambda line=line: line.search(cluster.metrics()), log=cluster.metrics)


def test_a_replica_that_is_stuck_gets_no_more_requests(cluster: Cluster) -> None:
    """The router knows what it sent: it would send half of them there if it chose at random."""
    found: Counter[str] = Counter()

    def ask() -> None:
        answer = httpx.post(f"{cluster.url}/classify?budget_ms=2000", content=PHOTO, timeout=60)
        found[answer.headers["x-san-replica"]] += 1

    def ask_often(times: int) -> list[threading.Thread]:
        threads = [threading.Thread(target=ask) for _ in range(times)]
        for thread in threads:
            thread.start()
            time.sleep(0.1)
        return threads

    with cluster.serving(2):
        for thread in ask_often(10):  # both are ready to answer
            thread.join()
        stuck, pid = next(iter(cluster.replicas().items()))
        found.clear()
        os.kill(pid, signal.SIGSTOP)
        try:
            threads = ask_often(20)
        finally:
            os.kill(pid, signal.SIGCONT)
        for thread in threads:
            thread.join()
    assert found.total() == 20
    assert found[stuck] <= 5


IN_RAY = """
import json, os
from types import SimpleNamespace
from deploy.ray_serve.application import Replica, build

# What Ray makes: an instance of the class behind the deployment.
replica = object.__new__(Replica.func_or_class)
looks = []
replica.metrics = SimpleNamespace(look=lambda **facts: looks.append(facts))
replica.service = SimpleNamespace(
    failure=None, is_ready=True, admission=SimpleNamespace(inside=3)
)
replica.check_health()
replica.service.failure = "the bundle is broken"
try:
    replica.check_health()
    said = ""
except RuntimeError as error:
    said = str(error)
os.environ |= {"SAN_PRECISION": "float", "SAN_RAY_CORES": "2"}
made = build({"cores": 2, "settings": {"SAN_MAX_BATCH": "4"}})
options = made._bound_deployment.ray_actor_options
print(json.dumps([looks, said, options["num_cpus"], options["runtime_env"]["env_vars"]]))
"""


def test_a_sick_replica_says_so_and_replicas_get_the_settings_of_the_shell(
    cluster: Cluster,
) -> None:
    looks, said, cores, variables = json.loads(cluster.python(IN_RAY).splitlines()[-1])
    assert looks == [{"ready": True, "inside": 3}]
    assert said == "the bundle is broken"
    assert cores == 2
    assert variables == {"SAN_PRECISION": "float", "SAN_MAX_BATCH": "4"}


def test_reloads_and_feedback_reach_the_replica_they_concern(
    cluster: Cluster, tmp_path: Path
) -> None:
    bundle = write_bundle(tmp_path / "served.safetensors")
    settings = {"SAN_BUNDLE": str(bundle), "SAN_ADMIN_KEYS": "secret", "SAN_ENGINE": "torch"}
    with (
        cluster.serving(2, settings=settings),
        httpx.Client(base_url=cluster.url, timeout=120) as client,
    ):
        answers = [client.post("/classify", content=PHOTO).json() for _ in range(20)]
        for answer in answers:
            given = {"request_id": answer["request_id"], "index": 0}
            assert client.post("/feedback", json=given).status_code == 200
        write_bundle(tmp_path / "new.safetensors", version="2").replace(bundle)
        key = {"authorization": "Bearer secret"}
        assert client.post("/admin/reload", headers=key).status_code == 200
        versions = {}
        for _ in range(30):
            seen = client.get("/version")
            versions[seen.headers["x-san-replica"]] = seen.json()["model"]["version"]
        assert len(versions) == 2
        assert set(versions.values()) == {"2"}


def test_load_that_is_shed_brings_more_replicas(cluster: Cluster) -> None:
    with (
        cluster.serving(1, most=2, upscale_delay_s=2),
        Load(cluster.url, "?budget_ms=20&on_miss=refuse", clients=12) as load,
    ):
        until(lambda: len(cluster.replicas()) == 2, log=cluster.log)
    assert set(load.outcomes) - {200}, "nothing was refused: the load was too small to tell"
