"""The process: signals, drain, exit codes."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from service import app
from tests.service.conftest import picture, write_bundle

START_S = 120


class Process:
    """`san serve` with its log read along."""

    def __init__(self, *arguments, environment=None):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "san_cli", "serve", *map(str, arguments)],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | (environment or {}),
            cwd=Path(__file__).parents[3],
        )
        self.log = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line)

    def said(self, pattern):
        """Wait until a line of the log matches."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            for line in list(self.log):
                if found := re.search(pattern, line):
                    return found
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in:\n{''.join(self.log)}")

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(timeout=START_S)  # workers write on for as long as they drain
        self.process.stderr.close()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_bundle(tmp_path_factory.mktemp("life") / "served.safetensors")


@pytest.fixture
def process(bundle):
    made = Process(bundle, "--port", 0, "--engine", "torch", "--max-batch", 1, "--drain-grace-s", 1)
    yield made
    made.stop()


@pytest.mark.slow
def test_a_life(process, bundle):
    """Starts, serves, swaps on SIGHUP, drains on SIGTERM, exits with 0."""
    port = process.said(r"running on http://127.0.0.1:(\d+)")[1]
    process.said('"message":"ready"')
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=240) as client:
        assert client.post("/classify", content=picture()).status_code == 200

        write_bundle(bundle, name="newer", seed=1)
        process.process.send_signal(signal.SIGHUP)
        process.said("retired bundle tiny")
        assert client.get("/version").json()["model"]["name"] == "newer"

        # Readiness goes at once; within the grace requests are still served.
        process.process.send_signal(signal.SIGTERM)
        until_unready(client)
        assert client.post("/classify", content=picture()).status_code == 200
    assert process.process.wait(timeout=60) == 0
    process.said("draining")


def until_unready(client):
    deadline = time.monotonic() + 10
    while client.get("/readyz").status_code == 200:
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.slow
def test_a_bundle_that_cannot_be_served_is_one_sentence_and_code_2(tmp_path):
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"not a bundle at all")
    process = Process(broken, "--port", 0)
    try:
        assert process.process.wait(timeout=START_S) == 2
        process.said("^san serve: .* is not a bundle")
    finally:
        process.stop()


def switches(pid):
    """How often each thread of a process was given a core, or gave it away."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        counts = re.findall(r"ctxt_switches:\s+(\d+)", (task / "status").read_text())
        found[int(task.name)] = sum(map(int, counts))
    return found


@pytest.mark.slow
def test_threads_that_compute_are_equally_nice_and_the_event_loop_and_the_engine_are_not(bundle):
    """The network's own threads are as nice as the thread that made them."""
    process = Process(bundle, "--port", 0, "--engine", "openvino", "--engine-threads", 2)
    try:
        port = process.said(r"running on http://127.0.0.1:(\d+)")[1]
        process.said("complete: ")  # no builder is busy any more
        before = switches(process.process.pid)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            several = [("image", ("photo.jpg", picture(), "image/jpeg"))] * 4
            for _ in range(20):  # which run side by side, each on a thread of the network's
                assert client.post("/classify?resolution=64", files=several).status_code == 200
        after = switches(process.process.pid)
        busy = [thread for thread, count in after.items() if count > before.get(thread, 0) + 10]
        assert len(busy) >= 3  # the event loop, the engine, a thread of the network's
        loop = process.process.pid  # its main thread
        ours = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, loop) == ours
        niceness = Counter(os.getpriority(os.PRIO_PROCESS, t) for t in busy if t != loop)
        nice = max(ours, app._NICE)
        assert set(niceness) == {ours, nice}
        if nice > ours:
            assert niceness[ours] == 1  # the engine's own, which hands over and waits
    finally:
        process.stop()
