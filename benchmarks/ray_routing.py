"""Two Ray replicas, one of them slow: promises kept by Ray's own router and by headroom.

    python -m benchmarks.ray_routing [--rate 10] [--seconds 40] [--budget 50]

Each replica is on a node of its own, and each node is kept on a core of its own. The slow one's
core is busy with loops. Ray's proxy is on a third node, which shares the other core with the
clients: Ray's default prefers a replica on the proxy's own node. The rate is one that the other
replica carries beside the proxy. Both routers get the same arrivals, one after the other. At the
end, with our router and nothing slowed, one replica is killed while requests are inside.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx

from benchmarks.driving.photo import photo
from benchmarks.servers.ray_cluster import DEFAULT_ROUTER, Cluster, Node

ROUTERS = {"Ray's default": DEFAULT_ROUTER, "headroom": "deploy.ray_serve.router:HeadroomRouter"}
LOOPS = 12
"""Each has a session of its own: Linux shares a core out evenly among sessions."""
SLOWER = 3.0
"""How much longer than the other one the slow replica must take, or nothing was tried."""
KEPT = 0.97
"""Of the requests with the budget, what our router must have answered in time."""


@contextmanager
def slowed(core: int) -> Iterator[None]:
    """Keep a core busy with loops."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        for _ in range(LOOPS)
    ]
    try:
        for loop in loops:
            os.sched_setaffinity(loop.pid, {core})
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@dataclass
class Seen:
    """What clients saw."""

    outcomes: Counter[str] = field(default_factory=Counter)
    replicas: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    """By replica, requests that were not answered in time."""
    took: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By replica, ms from the proxy's first byte to the answer."""

    @property
    def kept(self) -> float:
        """Share of all requests that were answered in time; a refusal is not."""
        return self.outcomes["in time"] / max(1, self.outcomes.total())

    def median_ms(self, replica: str) -> float:
        """What the replica took; infinite if it gave no answer."""
        return median(self.took[replica] or [math.inf])

    def share(self, replica: str) -> str:
        """What a replica had of the requests."""
        had, broken = self.replicas[replica], self.broken[replica]
        return f"had {had} requests, {broken} not in time, median {self.median_ms(replica):.1f} ms"

    @property
    def lost(self) -> int:
        """Requests that ended with neither an answer nor an error of HTTP."""
        known = ("in time", "late")
        return sum(
            n for name, n in self.outcomes.items() if name not in known and not name.isdigit()
        )


def ask(url: str, budget_ms: float, rate: float, seconds: float) -> Seen:
    """Poisson arrivals."""
    chance, body, seen = random.Random(1), photo(), Seen()
    threads = []

    def one() -> None:
        try:
            answer = client.post(f"{url}/classify?budget_ms={budget_ms:g}", content=body)
        except httpx.HTTPError as error:
            seen.outcomes[type(error).__name__] += 1
            return
        replica = answer.headers.get("x-san-replica", "none")
        seen.replicas[replica] += 1
        outcome = str(answer.status_code)
        if answer.status_code == 200:
            told = answer.json()
            outcome = "in time" if told["budget"]["met"] else "late"
            seen.took[replica].append(told["timing_ms"]["total"])
        seen.outcomes[outcome] += 1
        seen.broken[replica] += outcome != "in time"

    with httpx.Client(timeout=30) as client:
        for _ in range(round(rate * seconds)):
            thread = threading.Thread(target=one)
            thread.start()
            threads.append(thread)
            time.sleep(chance.expovariate(rate))
        for thread in threads:
            thread.join()
    return seen


def killing(cluster: Cluster, budget_ms: float, rate: float, seconds: float) -> Seen:
    """What clients saw while one of two replicas was killed, a third into the time."""
    victim, _ = cluster.replicas().values()
    timer = threading.Timer(seconds / 3, os.kill, (victim, signal.SIGKILL))
    timer.start()
    try:
        return ask(cluster.url, budget_ms, rate, seconds)
    finally:
        timer.join()


def main() -> int:
    """Print what became of the requests, and whether the promises were kept."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rate", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--budget", type=float, default=50)
    args = parser.parse_args()
    busy, *_, free = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {free})  # the clients, too: a loop must not delay what they send
    nodes = Node(0, free), Node(1, free), Node(1, busy)
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="san-ray-")), nodes)
    kept: dict[str, float] = {}
    slower: dict[str, float] = {}
    killed = Seen()
    try:
        for name, router in ROUTERS.items():
            with cluster.serving(2, router=router):
                ask(cluster.url, 1000, args.rate, 5)  # both have answered, and reported
                slow, other = sorted(
                    cluster.replicas().items(),
                    key=lambda item: free in os.sched_getaffinity(item[1]),
                )
                with slowed(busy):
                    pace = ask(cluster.url, 1000, args.rate, 5)  # predictions follow
                    seen = ask(cluster.url, args.budget, args.rate, args.seconds)
                kept[name] = seen.kept
                slower[name] = pace.median_ms(slow[0]) / pace.median_ms(other[0])
                sys.stdout.write(
                    f"{name}: {seen.outcomes.total()} requests, {seen.kept:.1%} answered in time; "
                    f"{dict(seen.outcomes)}; the slow one took {slower[name]:.1f} times as long, "
                    f"{seen.share(slow[0])}; the other one {seen.share(other[0])}\n"
                )
                sys.stdout.flush()
                if name == "headroom":
                    killed = killing(cluster, 1000, 2 * args.rate, args.seconds / 2)
    finally:
        cluster.close()
    ours, default = kept["headroom"], kept["Ray's default"]
    verdict = {
        f"one replica was slow: {min(slower.values()):.1f} times": min(slower.values()) >= SLOWER,
        f"headroom keeps {ours:.1%}, at least {KEPT:.0%}": ours >= KEPT,
        f"Ray's default keeps fewer: {default:.1%}": default < ours,
        f"one killed, {killed.lost} of {killed.outcomes.total()} without an answer or an error, "
        f"{dict(killed.outcomes)}": killed.lost == 0,
    }
    for claim, holds in verdict.items():
        sys.stdout.write(f"{'held' if holds else 'NOT HELD'}: {claim}\n")
    return 0 if all(verdict.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
