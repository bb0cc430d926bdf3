"""More load than the machine can hold: twice, and ten times, what the best resolution can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.driving.arrivals import Arrivals, schedule
from benchmarks.driving.open_loop import Sample, capacity, open_loop
from benchmarks.reporting.results import Check, Report, ms, table
from benchmarks.servers.our_service import OurService, classify

BUDGET_MS = 100.0
_RECOVERY_S = 2.0
_PROBES_PER_S = 50
_IN_A_ROW = 10
"""So many answers in time, one after the other, count as recovered."""


def _met(sample: Sample) -> bool:
    """By the budget's own definition: first byte received to first byte sent."""
    return sample.answer is not None and sample.answer.header("x-san-budget-met") == "true"


def _resolutions(samples: Sequence[Sample]) -> dict[int, float]:
    found = Counter(
        int(s.answer.header("x-san-resolution") or 0)
        for s in samples
        if s.answer is not None and s.status == 200
    )
    total = sum(found.values()) or 1
    return {resolution: n / total for resolution, n in sorted(found.items(), reverse=True)}


def describe(samples: Sequence[Sample], seconds: float) -> dict[str, Any]:
    """What became of a load."""
    answered = [s for s in samples if s.status == 200]
    refused = [s for s in samples if s.status in (429, 503)]
    others = Counter(s.status for s in samples if s.status not in (200, 429, 503))
    latency = [s.latency_ms for s in answered] or [float("nan")]
    refusal = [s.latency_ms for s in refused] or [float("nan")]
    return {
        "offered_per_s": len(samples) / seconds,
        "answered": len(answered) / len(samples),
        "refused": len(refused) / len(samples),
        "other_statuses": dict(others),
        "in_time_of_all": sum(s.on_time(BUDGET_MS) for s in samples) / len(samples),
        "in_time_of_answered": sum(s.on_time(BUDGET_MS) for s in answered) / (len(answered) or 1),
        "met_of_all": sum(map(_met, samples)) / len(samples),
        "met_of_answered": sum(map(_met, answered)) / (len(answered) or 1),
        "p50": float(np.percentile(latency, 50)),
        "p99": float(np.percentile(latency, 99)),
        "refusal_p50": float(np.percentile(refusal, 50)),
        "refusal_p99": float(np.percentile(refusal, 99)),
        "lag_p99": float(np.percentile([s.lag_ms for s in samples], 99)),
        "resolutions": _resolutions(answered),
    }


def recovery_s(samples: Sequence[Sample], end: float) -> float:
    """Seconds from the load's end until answers are in time, and stay so; infinite if never."""
    after = sorted((s for s in samples if s.due >= end), key=lambda s: s.due)
    since: float | None = None
    row = 0
    for sample in after:
        if sample.on_time(BUDGET_MS):
            since = sample.due if row == 0 else since
            row += 1
            if row >= _IN_A_ROW and since is not None:
                return since - end
        else:
            row, since = 0, None
    return float("inf")


def run(service: OurService, body: bytes, report: Report, seconds: float) -> None:
    """Measure what the best resolution holds, then offer twice and ten times that."""
    best = service.best()
    pinned = classify(body, resolution=best.resolution)
    holds = capacity(service.port, [pinned], seconds=max(2.0, seconds / 4))
    print(f"{best.resolution} px holds {holds:.0f} requests/s", flush=True)
    request = classify(body, budget_ms=f"{BUDGET_MS:g}")
    rows, found = [], {}
    for factor, share in ((2, 1.0), (10, 0.5)):
        end = seconds * share
        times = schedule(Arrivals.POISSON, factor * holds, end, seed=factor)
        probes = np.arange(end, end + _RECOVERY_S, 1 / _PROBES_PER_S).tolist()
        samples = open_loop(service.port, [*times, *probes], [request])
        loaded = [s for s in samples if s.due < end]
        facts = describe(loaded, end)
        facts["recovery_s"] = recovery_s(samples, end)
        found[f"{factor}x"] = facts
        shares = ", ".join(f"{r}: {100 * x:.0f} %" for r, x in facts["resolutions"].items())
        rows.append(
            [
                f"{factor}x",
                f"{facts['offered_per_s']:.0f}",
                *(f"{100 * facts[k]:.1f}" for k in ("answered", "refused")),
                *(f"{100 * facts[k]:.2f}" for k in ("in_time_of_answered", "met_of_answered")),
                *(ms(facts[k]) for k in ("p50", "p99", "refusal_p50", "refusal_p99")),
                f"{facts['recovery_s']:.2f}",
                shares,
            ]
        )
        print(f"{factor}x: {rows[-1]}", flush=True)
    report.data["overload"] = {"best": best.name, "capacity_per_s": holds, **found}
    report.say(
        f"Overload, Poisson arrivals, {BUDGET_MS:g} ms budget; {best.resolution} px holds "
        f"{holds:.0f} requests/s. *In time* is what the client saw, *met* what the budget counts "
        "(first byte received to first byte sent); both of those answered."
    )
    head = ["load", "offered/s", "answered %", "refused %", "in time %", "met %", "p50 ms"]
    head += ["p99 ms", "refusal p50 ms", "refusal p99 ms", "recovered after s", "resolutions"]
    report.say(table(head, rows))
    twice, tenfold = found["2x"], found["10x"]
    claims = (
        ("2x load: requests answered in time", 100 * twice["in_time_of_all"], ">=", 99, " %"),
        ("10x load: admitted ones in time", 100 * tenfold["in_time_of_answered"], ">=", 99, " %"),
        ("10x load: a refusal, median", tenfold["refusal_p50"], "<=", BUDGET_MS / 4, " ms"),
        ("10x load: recovered after", tenfold["recovery_s"], "<=", 1, " s"),
    )  # fmt: skip
    for claim in claims:
        report.check(Check(*claim))
