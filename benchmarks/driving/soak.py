"""A hundred thousand requests of every kind, and what the memory does meanwhile."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.driving.open_loop import Sample, closed_loop
from benchmarks.driving.photo import photo
from benchmarks.driving.wire import Client
from benchmarks.reporting.results import Check, Report, table
from benchmarks.servers.our_service import OurService, classify

BUDGETS_MS = (20, 20, 20, 50, 100)
"""Mostly what a busy service can keep: an answer passes through all of it, a refusal does not."""
CLIENTS = 8
"""An answer takes at most its budget: with so many under way 100,000 take about 480 s at most."""
_GROWTH_MB = 25.0
"""What the second half of a soak may add; a leak of 1 KB per request would be twice that."""
_ANSWERED = 50.0
"""Per cent: memory that only stays because everybody is turned away proves nothing."""
_BUILD_S = 30.0


def pins(body: bytes, resolutions: Sequence[int]) -> list[bytes]:
    """A request for each resolution by name."""
    return [classify(body, resolution=resolution) for resolution in resolutions]


def mix(resolutions: Sequence[int]) -> Iterator[bytes]:
    """Mostly small photos under many budgets, now and then something odd; the same each time."""
    small, middle, large = photo(160, 80), photo(320, 80), photo()
    png = photo(160, how="PNG")
    usual = [classify(small, budget_ms=budget) for budget in BUDGETS_MS]
    usual += [classify(middle, budget_ms=20)]
    rare = [classify(large, budget_ms=50), classify(small), classify(png, budget_ms=20)]
    rare += [classify(small, budget_ms=5), *pins(small, resolutions)]
    odd = [classify(b"not an image"), classify(large[: len(large) // 2]), classify(small, budgte=5)]
    draw = random.Random(7)
    while True:
        chance = draw.random()
        yield draw.choice(usual if chance < 0.93 else rare if chance < 0.98 else odd)


def warm(port: int, requests: Sequence[bytes]) -> None:
    """Ask until every network is ready, so that none is added while the memory is watched."""
    with Client(port) as client:
        for request in requests:
            until = time.monotonic() + _BUILD_S
            while client.send(request).header("x-san-weights") != "cached":
                if time.monotonic() > until:
                    break  # no room for it: the cache is as large as it gets
                time.sleep(0.1)


def tell(
    report: Report,
    samples: Sequence[Sample],
    trace: Sequence[tuple[float, float]],
    took: float,
    wanted: int,
) -> None:
    """The table and the claims; the memory's slope is taken over the second half."""
    half = [mb for at, mb in trace if at >= took / 2] or [trace[-1][1]]
    # Medians of the ends: one sample may catch a buffer that is about to be freed.
    ends = max(1, len(half) // 5)
    growth = float(np.median(half[-ends:]) - np.median(half[:ends]))
    statuses = Counter(s.status for s in samples)
    sent, answered, refused = len(samples), statuses[200], statuses[429]
    failures = sum(n for status, n in statuses.items() if status >= 500 or status <= 0)
    report.data["soak"] = {
        "requests": sent,
        "answered": answered,
        "refused": refused,
        "seconds": took,
        "statuses": dict(statuses),
        "growth_second_half_mb": growth,
        "memory_mb": [[round(at, 1), round(mb, 1)] for at, mb in trace][
            :: max(1, len(trace) // 60)
        ],
    }
    report.say(
        f"Soak: {sent} requests in {took:.0f} s from {CLIENTS} clients (photos of three sizes, "
        "mostly under budgets of 20 to 100 ms, pins, PNGs, and 2 % that are wrong). Memory is "
        "watched once every pin's network is ready."
    )
    rows = [
        [
            *(sent, f"{sent / took:.0f}", answered, refused, failures),
            *(f"{mb:.0f}" for mb in (trace[0][1], half[0], half[-1])),
        ]
    ]
    head = ["requests", "per s", "answered (200)", "refused (429)", "5xx or broken"]
    report.say(table([*head, "MB at start", "MB half-way", "MB at the end"], rows))
    for claim, part, whole, bound in (
        (f"of {wanted} requests sent in the soak", sent, wanted, 100.0),
        ("requests answered in the soak", answered, sent, _ANSWERED),
    ):
        report.check(Check(claim, 100 * part / max(1, whole), ">=", bound, " %"))
    report.check(Check("memory added in the soak's second half", growth, "<=", _GROWTH_MB, " MB"))
    report.check(Check("5xx answers or broken connections in the soak", failures, "<=", 0))


def run(service: OurService, report: Report, requests: int, seconds: float) -> None:
    """Send until either bound is reached."""
    resolutions = sorted({point.resolution for point in service.points() if point.frontier})
    warm(service.port, pins(photo(160, 80), resolutions))
    trace: list[tuple[float, float]] = [(0.0, service.memory_mb())]
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
        service.port,
        mix(resolutions),
        clients=CLIENTS,
        seconds=seconds,
        count=requests,
        tick=watch,
    )
    trace.append((time.monotonic() - began, service.memory_mb()))
    tell(report, samples, trace, took, requests)
