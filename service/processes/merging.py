"""Metrics of several processes as one, in the files of prometheus_client's multi-process mode.

A worker writes its files when it is asked to, not while it serves. The files of one that died stay,
so that a counter never falls; its gauges go.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.samples import Sample

_MODES = {
    "san_ready": "min",
    "san_backlog_seconds": "max",
    "san_loop_lag_seconds": "max",
    "san_latency_drift_ratio": "max",
    "san_point_latency_seconds": "max",
    "san_point_accuracy": "max",
    "process_start_time_seconds": "min",
}
"""What a gauge is over all workers; a sum where nothing is said."""


def _kind(family: Metric) -> str:
    if family.type in ("counter", "histogram"):
        return family.type
    # What merely names things is the same in every worker.
    mode = "max" if family.type == "info" else _MODES.get(family.name, "sum")
    return f"gauge_live{mode}"


def _uncumulated(samples: Iterable[Sample]) -> Iterator[Sample]:
    """A histogram's samples as the files hold them: buckets apart, the count left to the reader."""
    below: dict[tuple[tuple[str, str], ...], float] = defaultdict(float)
    for sample in samples:
        if sample.name.endswith("_bucket"):
            series = tuple((k, v) for k, v in sample.labels.items() if k != "le")
            yield sample._replace(value=sample.value - below[series])
            below[series] = sample.value
        elif sample.name.endswith("_sum"):
            yield sample


def write(families: Iterable[Metric], directory: Path, pid: int) -> None:
    """Replace a process' files by what its families say now."""
    kinds: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for family in families:
        samples = _uncumulated(family.samples) if family.type == "histogram" else family.samples
        # Families of information are named without the ending that their samples have.
        name = f"{family.name}_info" if family.type == "info" else family.name
        for sample in samples:
            if not sample.name.endswith("_created"):
                key = mmap_key(
                    name,
                    sample.name,
                    list(sample.labels),
                    list(sample.labels.values()),
                    family.documentation,
                )
                kinds[_kind(family)].append((key, sample.value))
    for kind, entries in kinds.items():
        # Made anew each time, for series may end (a bundle's, when another is swapped in).
        beside = directory / f"{kind}_{pid}.new"
        beside.unlink(missing_ok=True)
        file = MmapedDict(str(beside))
        for key, value in entries:
            file.write_value(key, value, 0.0)
        file.close()
        os.replace(beside, directory / f"{kind}_{pid}.db")  # noqa: PTH105


def merged(directory: Path) -> CollectorRegistry:
    """A registry with the metrics of all processes."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(directory))
    return registry


def forget_gauges(directory: Path, pid: int) -> None:
    """A process has died: what it counted stays, what it was like does not."""
    mark_process_dead(pid, str(directory))
