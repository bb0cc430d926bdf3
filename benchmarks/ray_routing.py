"""Two Ray replicas, one of them slow: promises kept by Ray's own router and by headroom.

    python -m benchmarks.ray_routing [--rate 20] [--seconds 20] [--budget 50]

The slow replica shares one core with busy loops; the other one has the second core, as far as Ray's
proxy and the clients leave it. Both routers get the same arrivals, one after the other. At the end,
with our router and nothing slowed, one replica is killed while requests are inside.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
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
KEPT = 0.97
"""What our router must keep of the promises made."""


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


def kept(outcomes: Counter[str]) -> float:
    """Of the requests that were let in, those that were answered in time."""
    return outcomes["in time"] / max(1, outcomes["in time"] + outcomes["late"])


def lost(outcomes: Counter[str]) -> int:
    """Requests that ended with neither an answer nor an error of HTTP."""
    known = ("in time", "late")
    return sum(n for name, n in outcomes.items() if name not in known and not name.isdigit())


def killing(cluster: Cluster, budget_ms: float, rate: float, seconds: float) -> Counter[str]:
    """Outcomes while one of two replicas is killed, a third into the time."""
    victim, _ = cluster.replicas().values()
    timer = threading.Timer(seconds / 3, os.kill, (victim, signal.SIGKILL))
    timer.start()
    try:
        return ask(cluster.url, budget_ms, rate, seconds)[0]
    finally:
        timer.join()


def main() -> int:
    """Print what became of the requests, and whether the promises were kept."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--budget", type=float, default=50)
    args = parser.parse_args()
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="san-ray-")))
    shares: dict[str, float] = {}
    killed: Counter[str] = Counter()
    try:
        for name, router in ROUTERS.items():
            with cluster.serving(2, router=router):
                ask(cluster.url, 1000, args.rate, 5)  # both have answered, and reported
                slow, other = cluster.replicas().values()
                with slowed(slow, other):
                    ask(cluster.url, args.budget, args.rate, 5)  # predictions follow
                    outcomes, replicas = ask(cluster.url, args.budget, args.rate, args.seconds)
                sent, shares[name] = sum(outcomes.values()), kept(outcomes)
                sys.stdout.write(
                    f"{name}: {sent} requests, {outcomes['in time'] / sent:.1%} answered in time; "
                    f"of the answers {shares[name]:.1%}; {dict(outcomes)}; "
                    f"by replica {sorted(replicas.values())}\n"
                )
                sys.stdout.flush()
                if name == "headroom":
                    killed = killing(cluster, 1000, args.rate, args.seconds)
    finally:
        cluster.close()
    ours, default = shares["headroom"], shares["Ray's default"]
    verdict = {
        f"headroom keeps {ours:.1%}, at least {KEPT:.0%}": ours >= KEPT,
        f"Ray's default keeps fewer: {default:.1%}": default < ours,
        f"one killed, {lost(killed)} of {sum(killed.values())} without an answer or an error, "
        f"{dict(killed)}": lost(killed) == 0,
    }
    for claim, holds in verdict.items():
        sys.stdout.write(f"{'held' if holds else 'NOT HELD'}: {claim}\n")
    return 0 if all(verdict.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
