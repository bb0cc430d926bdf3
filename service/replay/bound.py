"""What a scheduler that knows every arrival ahead could get at most.

The bound relaxes the problem until it can be solved exactly: the machine is one resource whose
time is divisible, runs can be interrupted, every image runs in a batch of the best size, and every
time is its mean. Refusing costs what it costs: every arrival takes the event loop's time when it
comes. Beyond that a request may use the machine from its arrival to its deadline; what it gets for
its time is the concave hull of (time, accuracy) over the points. This is a
separable concave maximum over a polymatroid, so the greedy one is exact: take the hull's segments
from the steepest to the flattest and give each as much time as is left. How much time requests can
use in all, if each takes up to u, is what earliest-deadline-first gets done (Glover 1967).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from service.latency.catalogue import Listing
from service.latency.curves import Measurements
from service.replay.machine import HostModel
from service.replay.simulation import Job
from service.replay.traces import Arrival


def machine_ms(
    listing: Listing, job: Job, measured: Measurements, host: HostModel, max_batch: int = 8
) -> float:
    """Time of the whole machine that one image takes at a point, in the best batch."""
    curve = measured.curves[listing.shape]
    run = min((curve.at(n) + host.handover_ms / host.cores) / n for n in range(1, max_batch + 1))
    beside = job.decode_ms(listing.point.resolution)
    beside += host.receive_ms - host.refuse_ms + host.answer_ms
    if host.engine_threads:
        return host.mean * (run * host.engine_threads / host.cores + beside / host.cores)
    return host.mean * max(run, beside / host.cores)


def _work_done(jobs: Sequence[tuple[float, float]], most_ms: float, arrival_ms: float) -> float:
    """Work that earliest-deadline-first gets done on (arrival, deadline), up to `most_ms` each.

    An arrival takes `arrival_ms` of the machine before anything else.
    """
    waiting: list[list[float]] = []
    now, done, i = 0.0, 0.0, 0
    while i < len(jobs) or waiting:
        if not waiting:
            now = max(now, jobs[i][0])
        while i < len(jobs) and jobs[i][0] <= now:
            heapq.heappush(waiting, [jobs[i][1], most_ms])
            now += arrival_ms
            i += 1
        deadline, left = waiting[0]
        until = min(now + left, deadline, jobs[i][0] if i < len(jobs) else float("inf"))
        gone = max(0.0, until - now)
        done += gone
        now = max(now, until)
        if gone >= left - 1e-9 or now >= deadline - 1e-9:
            heapq.heappop(waiting)
        else:
            waiting[0][1] = left - gone
    return done


def clairvoyant(
    trace: Sequence[Arrival],
    job: Job,
    measured: Measurements,
    listings: Sequence[Listing],
    host: HostModel,
) -> float:
    """Most accuracy in time per offered request; `job` stands for the images of the trace."""
    points = sorted((machine_ms(x, job, measured, host), x.rank) for x in listings)
    corner, level, total = (0.0, 0.0), 0.0, 0.0
    jobs = [(a.at_ms, a.at_ms + (a.budget_ms or 2000.0)) for a in trace]
    while ahead := [p for p in points if p[0] > corner[0] and p[1] > corner[1]]:
        base = corner
        corner = max(ahead, key=lambda p: ((p[1] - base[1]) / (p[0] - base[0]), p[1]))
        reached = _work_done(jobs, corner[0], host.mean * host.refuse_ms / host.cores)
        total += (reached - level) * (corner[1] - base[1]) / (corner[0] - base[0])
        level = reached
    return total / max(1, len(trace))
