"""Several workers on one port: real processes, real sockets, real signals."""

import os
import signal
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from uvicorn.config import STARTUP_FAILURE

from service.processes.supervisor import _Nap, _Supervisor
from service.settings import MEGA, Settings
from tests.service.conftest import picture, write_bundle
from tests.service.http.test_errors import check_problem
from tests.service.http.test_operations import metrics_of
from tests.service.serving.test_life import Process
from tests.waiting import until

pytestmark = pytest.mark.slow

OPTIONS = ("--port", 0, "--workers", 2, "--engine", "torch", "--max-batch", 2, "--no-access-log")
PATIENCE_S = 120


class Pair:
    """A service of two workers."""

    def __init__(self, folder, *options):
        self.bundle = write_bundle(folder / "served.safetensors")
        folder.joinpath("tmp").mkdir()
        self.process = Process(
            self.bundle,
            *OPTIONS,
            *options,
            "--cache-dir",
            folder,
            environment={"TMPDIR": str(folder / "tmp")},
        )
        self.pid = self.process.process.pid
        self.temporary = folder / "tmp"
        self.url = self.process.said(r"2 workers on (http://[\d.]+:\d+)")[1]

    def until_ready(self):
        until(lambda: self.ask("GET", "/readyz").status_code == 200)

    def ask(self, method, path, **options):
        """One request over a connection of its own."""
        with httpx.Client(base_url=self.url, timeout=PATIENCE_S) as client:
            return client.request(method, path, **options)

    def sums(self):
        with httpx.Client(base_url=self.url, timeout=PATIENCE_S) as client:
            return sums(client)

    def pids(self):
        """The two workers, from what answers."""
        found = set()
        until(lambda: found.add(self.ask("GET", "/version").json()["pid"]) or len(found) >= 2)
        return sorted(found)

    @contextmanager
    def worker(self, pid):
        """A client whose connection ends at one worker."""
        for _ in range(500):
            with httpx.Client(base_url=self.url, timeout=PATIENCE_S) as client:
                if client.get("/version").json()["pid"] == pid:
                    yield client
                    return
        raise AssertionError(f"worker {pid} never answered")

    @contextmanager
    def both(self):
        """A client of each worker."""
        first, second = self.pids()
        with self.worker(first) as one, self.worker(second) as other:
            yield one, other


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


class Retold:
    """A worker's process as its supervisor knows it."""

    def __init__(self, pid):
        self.pid = pid


def supervisor_of(pids, room):
    supervisor = _Supervisor.__new__(_Supervisor)
    supervisor.processes = [Retold(pid) for pid in pids]
    supervisor._room = room
    return supervisor


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    made = Pair(tmp_path_factory.mktemp("pair"))
    made.until_ready()
    yield made
    made.process.stop()


def sums(client):
    """Everything counted so far, by the name of the metric."""
    found = Counter()
    for (name, _), value in metrics_of(client).items():
        found[name] += value
    return found


def test_the_end_of_a_worker_ends_the_supervisors_nap():
    ended, other = os.pipe()
    nap = _Nap(lambda: [SimpleNamespace(sentinel=ended)])
    napping = threading.Thread(target=nap.wait, args=(600,), daemon=True)
    napping.start()
    os.close(other)
    napping.join(60)
    assert not napping.is_alive()
    assert not nap.is_set()
    os.close(ended)
    nap.set()
    assert nap.wait(600)


def test_both_processes_answer(pair):
    assert pair.pid not in pair.pids()
    with pair.both() as clients:
        for client in clients:
            assert client.post("/classify", content=picture()).status_code == 200


def test_metrics_are_those_of_all_workers(pair):
    with pair.both() as (first, second):
        before = sums(first)
        for client, times in ((first, 3), (second, 5)):
            for _ in range(times):
                assert client.post("/classify", content=picture()).status_code == 200
        for client in (first, second):
            after = sums(client)
            for name in (
                "san_requests_total",
                "san_request_duration_seconds_count",
                "san_prediction_ratio_count",
            ):
                assert after[name] - before[name] == 8
            found = metrics_of(client)
            assert found[("san_workers", ())] == 2
            assert found[("san_ready", ())] == 1
            buckets = [v for (n, _), v in found.items() if n == "san_prediction_ratio_bucket"]
            assert buckets == sorted(buckets)
            assert buckets[-1] == found[("san_prediction_ratio_count", ())]
            (model,) = [k for k in found if k[0] == "san_model_info"]
            assert found[model] == 1
            each = Settings.model_fields["cache_megabytes"].default * MEGA
            assert found[("san_weight_cache_capacity_bytes", ())] == 2 * each


def test_feedback_finds_the_worker_that_answered(pair):
    with pair.both() as (first, second):
        before = sums(first)["san_feedback_known_total"]
        answer = first.post("/classify", content=picture()).json()
        given = {"request_id": answer["request_id"], "index": answer["predictions"][0]["index"]}
        assert second.post("/feedback", json=given).json() == {
            "request_id": answer["request_id"],
            "correct": True,
            "in_top5": True,
            "resolution": answer["resolution"],
        }
        check_problem(first.post("/feedback", json=given), 409)
        check_problem(second.post("/feedback", json=given), 409)
        check_problem(second.post("/feedback", json=given | {"request_id": "unknown"}), 404)
        assert sums(second)["san_feedback_known_total"] == before + 1


def test_weights_are_made_and_dropped_in_all_workers(pair):
    def cached(client):
        return 72 in [
            n["resolution"] for n in client.get("/resolutions").json()["cache"]["networks"]
        ]

    with pair.both() as (first, second):
        assert first.post("/resolutions/72/warm").json()["state"] == "building"
        until(lambda: cached(first) and cached(second))
        assert first.delete("/resolutions/72").json()["state"] == "evicted"
        assert not cached(first)
        assert not cached(second)
        check_problem(second.delete("/resolutions/72"), 404)


def test_a_reload_is_one_of_all_workers(pair):
    def names():
        with pair.both() as (first, second):
            return {c.get("/version").json()["model"]["name"] for c in (first, second)}

    good = pair.bundle.read_bytes()
    pair.bundle.write_bytes(b"broken")
    check_problem(pair.ask("POST", "/admin/reload"), 409)
    assert names() == {"tiny"}
    write_bundle(pair.bundle, name="newer", seed=1)
    assert pair.ask("POST", "/admin/reload").json()["model"]["name"] == "newer"
    assert names() == {"newer"}
    pair.bundle.write_bytes(good)
    before = set(pair.pids())
    os.kill(pair.pid, signal.SIGHUP)

    def replaced():
        """Two new workers answer, and nobody else."""
        answers = [pair.ask("GET", "/version").json() for _ in range(20)]
        pids = {answer["pid"] for answer in answers}
        return len(pids) == 2 and not pids & before and answers

    until(replaced)
    assert names() == {"tiny"}


class Load:
    """Clients that ask again and again, each time over a new connection."""

    def __init__(self, pair, clients=4):
        self.statuses = Counter()
        self._pair = pair
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def _ask(self):
        while not self._over.is_set():
            try:
                answer = self._pair.ask("POST", "/classify", content=picture())
                self.statuses[answer.status_code] += 1
            except httpx.TransportError as error:
                self.statuses[type(error).__name__] += 1

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def goes_on(self, answers=20):
        seen = self.statuses[200]
        until(lambda: self.statuses[200] >= seen + answers)


def test_a_worker_that_dies_is_replaced_while_the_other_serves(pair):
    before = pair.pids()
    with Load(pair) as load:
        load.goes_on()
        counted = pair.sums()
        os.kill(before[0], signal.SIGKILL)
        load.goes_on()
        until(lambda: pair.sums()["san_workers"] == 2)
        load.goes_on()
    # Only what the dead one held was lost, one request per client at most.
    lost = sum(n for status, n in load.statuses.items() if status != 200)
    assert set(load.statuses) <= {200, "RemoteProtocolError", "ReadError", "ConnectError"}
    assert lost <= 4
    pair.process.said(rf"worker {before[0]} ended \(Killed\) and is replaced")
    after = pair.pids()
    assert before[1] in after
    assert before[0] not in after
    now = pair.sums()
    assert now["san_worker_restarts_total"] >= 1
    # No counter has fallen: what the dead one had counted still counts.
    assert now["san_requests_total"] >= counted["san_requests_total"]


def test_a_worker_that_is_stopped_is_replaced_and_a_reload_still_answers(pair):
    stopped = pair.pids()[0]
    os.kill(stopped, signal.SIGSTOP)
    # The other one takes the connections; the stopped one does not hold up the swap.
    assert pair.ask("POST", "/admin/reload").status_code in {200, 409}
    until(lambda: gone(stopped))
    until(lambda: pair.sums()["san_workers"] == 2)
    assert stopped not in pair.pids()


def test_without_memory_for_one_more_the_workers_stay(pair):
    before = pair.pids()
    supervisor = supervisor_of(before, room=lambda: 1_000_000)
    supervisor.restart_all()
    assert [process.pid for process in supervisor.processes] == before


def test_it_drains_all_and_exits_with_0(pair):
    """Last: it ends the service."""
    pids = pair.pids()
    with Load(pair) as load:
        load.goes_on()
        os.kill(pair.pid, signal.SIGTERM)
        assert pair.process.process.wait(timeout=60) == 0
    assert all(gone(pid) for pid in pids)
    assert not list(pair.temporary.iterdir())
    # Admitted requests are answered; later ones find the port closed.
    assert 500 not in load.statuses


def test_workers_leave_with_their_supervisor(tmp_path):
    pair = Pair(tmp_path)
    try:
        pair.until_ready()
        pids = pair.pids()
        os.kill(pair.pid, signal.SIGKILL)
        until(lambda: all(gone(pid) for pid in pids))
    finally:
        pair.process.stop()


def test_a_worker_that_is_stopped_does_not_keep_the_service_from_leaving(tmp_path):
    pair = Pair(tmp_path, "--drain-timeout-s", 1)
    try:
        pair.until_ready()
        os.kill(pair.pids()[0], signal.SIGSTOP)
        os.kill(pair.pid, signal.SIGTERM)
        assert pair.process.process.wait(timeout=PATIENCE_S) == 0
    finally:
        pair.process.stop()


def test_a_bundle_that_no_worker_can_serve_ends_it(tmp_path):
    path = write_bundle(tmp_path / "served.safetensors")
    process = Process(path, *OPTIONS, "--device", "cuda:7")
    try:
        assert process.process.wait(timeout=PATIENCE_S) == STARTUP_FAILURE
        process.said("no CUDA device")
    finally:
        process.stop()
