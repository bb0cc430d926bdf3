"""A hundred thousand requests of every kind, and what the memory does meanwhile."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np

from benchmarks.open_loop import closed_loop
from benchmarks.our_service import OurService, classify
from benchmarks.photo import photo
from benchmarks.results import Check, Report, table

_CLIENTS = 4
_GROWTH_MB = 25.0
"""What the second half of a soak may add; a leak of 1 KB per request would be four times that."""


def _mix(service: OurService) -> Iterator[bytes]:
    """Mostly small photos under many budgets, now and then something odd; the same each time."""
    small, middle, large = photo(160, 80), photo(320, 80), photo()
    png = photo(160, how="PNG")
    usual = [classify(small, budget_ms=b) for b in (5, 10, 20, 50)] + [
        classify(middle, budget_ms=20)
    ]
    rare = [classify(large, budget_ms=50), classify(small), classify(png, budget_ms=20)]
    rare += [classify(small, resolution=p.resolution) for p in service.points() if p.frontier]
    odd = [classify(b"not an image"), classify(large[: len(large) // 2]), classify(small, budgte=5)]
    draw = random.Random(7)
    while True:
        chance = draw.random()
        yield draw.choice(usual if chance < 0.93 else rare if chance < 0.98 else odd)


def run(service: OurService, report: Report, requests: int, seconds: float) -> None:
    """Send until either bound is reached; the memory's slope is taken over the second half."""
    trace: list[tuple[float, float]] = []
    began = last = time.monotonic()

    def watch() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= 1.0:
            last = now
            trace.append((now - began, service.memory_mb()))
            if len(trace) % 15 == 0:
                print(f"  {now - began:.0f} s, {trace[-1][1]:.0f} MB", flush=True)

    print(f"Soak: {requests} requests, at most {seconds:.0f} s", flush=True)
    samples, took = closed_loop(
        service.port, _mix(service), clients=_CLIENTS, seconds=seconds, count=requests, tick=watch
    )
    trace.append((time.monotonic() - began, service.memory_mb()))
    half = [mb for at, mb in trace if at >= took / 2] or [trace[-1][1]]
    # Medians of the ends: one sample may catch a buffer that is about to be freed.
    ends = max(1, len(half) // 5)
    growth = float(np.median(half[-ends:]) - np.median(half[:ends]))
    statuses = Counter(s.status for s in samples)
    failures = sum(n for status, n in statuses.items() if status >= 500 or status <= 0)
    report.data["soak"] = {
        "requests": len(samples),
        "seconds": took,
        "statuses": dict(statuses),
        "growth_second_half_mb": growth,
        "memory_mb": [[round(at, 1), round(mb, 1)] for at, mb in trace][
            :: max(1, len(trace) // 60)
        ],
    }
    report.say(
        f"Soak: {len(samples)} requests in {took:.0f} s from {_CLIENTS} clients (photos of three "
        "sizes under five budgets, pins, PNGs, and 2 % that are wrong)."
    )
    per_s = f"{len(samples) / took:.0f}"
    row = [len(samples), per_s, f"{trace[0][1]:.0f}", f"{half[0]:.0f}", f"{half[-1]:.0f}", failures]
    head = ["requests", "per s", "MB at start", "MB half-way", "MB at the end", "5xx or broken"]
    report.say(table(head, [row]))
    report.check(Check("memory added in the soak's second half", growth, "<=", _GROWTH_MB, " MB"))
    report.check(Check("5xx answers or broken connections in the soak", failures, "<=", 0))
