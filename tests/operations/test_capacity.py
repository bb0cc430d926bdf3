"""The capacity formula, on numbers that can be checked by hand."""

import runpy
from pathlib import Path

import pytest

MODULE = runpy.run_path(str(Path(__file__).parents[2] / "deploy" / "capacity.py"))
HOST = MODULE["Host"](cores=4, engine_threads=4, decode_ms=3.0, overhead_ms=1.0, utilisation=0.5)


def point(resolution: int, batch_ms: float, *, frontier: bool = True) -> dict:
    return {
        "resolution": resolution,
        "mode": "proxy",
        "precision": "int8",
        "frontier": frontier,
        "accuracy": {"top1": resolution / 300},
        "latency_ms": {"1": {"p50": batch_ms}, "8": {"p50": batch_ms}},
    }


def test_a_replica_carries_what_its_cores_allow():
    resolutions = {
        "operating_points": [point(224, 32.0), point(96, 8.0), point(64, 1.0, frontier=False)]
    }
    small, large = MODULE["needs"](HOST, resolutions, 10_000)
    assert (small.resolution, large.resolution) == (96, 224)
    # 4 threads x 8 ms / 8 images + 3 + 1 = 8 core-ms; half of 4 cores: 250 answers per second
    assert (small.core_ms, small.per_replica, small.replicas, small.cores) == (8, 250, 40, 160)
    # 4 x 32 / 8 + 4 = 20 core-ms: 100 answers per second
    assert (large.core_ms, large.per_replica, large.replicas, large.cores) == (20, 100, 100, 400)


def test_the_mean_of_a_stage_is_read_from_the_metrics():
    metrics = (
        'san_stage_duration_seconds_sum{stage="decode"} 0.5\n'
        'san_stage_duration_seconds_count{stage="decode"} 100.0\n'
        'san_stage_duration_seconds_count{stage="queue"} 0.0\n'
    )
    assert MODULE["stage_ms"](metrics, "decode") == pytest.approx(5.0)
    assert MODULE["stage_ms"](metrics, "queue") is None


def test_a_price_adds_a_column():
    found = MODULE["needs"](HOST, {"operating_points": [point(96, 8.0)]}, 10_000)
    head, rule, line = MODULE["table"](found, 0.05).split("\n")
    assert head.count("|") == rule.count("|") == line.count("|") == 10
    assert line.startswith("| 96 | int8 | proxy |")
    assert line.endswith("| 160 | 8.00 |")
    plain = MODULE["table"](found, None).split("\n")
    assert {row.count("|") for row in plain} == {9}
