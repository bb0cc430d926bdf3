"""Two Ray replicas, one of them slow: promises kept by Ray's own router and by headroom.

    python -m benchmarks.ray_routing [--rate 20] [--seconds 20] [--budget 50]

The slow replica shares one core with busy loops; the other one has the second core, as far as Ray's
proxy and the clients leave it. Both routers get the same arrivals, one after the other.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.driving.photo import photo
from benchmarks.servers.ray_cluster import DEFAULT_ROUTER, Cluster

ROUTERS = {"Ray's default": DEFAULT_ROUTER, "headroom": "deploy.ray_serve.router:HeadroomRouter"}
LOOPS = 3


@contextmanager
def slowed(slow: int, other: int) -> Iterator[None]:
    """Keep a process on the first core, with busy loops, and another one on the second."""
    cores = sorted(os.sched_getaffinity(0))
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        for _ in range(LOOPS)
    ]
    try:
        for pid, core in (
            (slow, cores[0]),
            (other, cores[-1]),
            *((p.pid, cores[0]) for p in loops),
        ):
            subprocess.run(
                ["taskset", "-a", "-c", "-p", str(core), str(pid)], check=True, stdout=-3
            )
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def ask(
    url: str, budget_ms: float, rate: float, seconds: float
) -> tuple[Counter[str], Counter[str]]:
    """Poisson arrivals; outcomes, and answers by replica."""
    chance, body = random.Random(1), photo()
    outcomes: Counter[str] = Counter()
    replicas: Counter[str] = Counter()
    threads = []

    def one() -> None:
        try:
            answer = client.post(f"{url}/classify?budget_ms={budget_ms:g}", content=body)
        except httpx.HTTPError as error:
            outcomes[type(error).__name__] += 1
            return
        replicas[answer.headers.get("x-san-replica", "none")] += 1
        if answer.status_code == 200:
            outcomes["in time" if answer.json()["budget"]["met"] else "late"] += 1
        else:
            outcomes[str(answer.status_code)] += 1

    with httpx.Client(timeout=30) as client:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            thread = threading.Thread(target=one)
            thread.start()
            threads.append(thread)
            time.sleep(chance.expovariate(rate))
        for thread in threads:
            thread.join()
    return outcomes, replicas


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--budget", type=float, default=50)
    args = parser.parse_args()
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="san-ray-")))
    try:
        for name, router in ROUTERS.items():
            with cluster.serving(2, router=router):
                ask(cluster.url, 1000, args.rate, 5)  # both have answered, and reported
                slow, other = cluster.replicas().values()
                with slowed(slow, other):
                    ask(cluster.url, args.budget, args.rate, 5)  # predictions follow
                    outcomes, replicas = ask(cluster.url, args.budget, args.rate, args.seconds)
            sent = sum(outcomes.values())
            admitted = outcomes["in time"] + outcomes["late"]
            sys.stdout.write(
                f"{name}: {sent} requests, {outcomes['in time'] / sent:.1%} answered in time; of "
                f"the answers {outcomes['in time'] / max(1, admitted):.1%}; {dict(outcomes)}; "
                f"by replica {sorted(replicas.values())}\n"
            )
            sys.stdout.flush()
    finally:
        cluster.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
