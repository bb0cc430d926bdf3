"""The metrics of several workers as one page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

_OTHER_THAN_SUM = {
    "san_ready": min,
    "san_backlog_seconds": max,
    "san_loop_lag_seconds": max,
    "san_latency_drift_ratio": max,
    "san_point_latency_seconds": max,
    "san_point_accuracy": max,
    "process_start_time_seconds": min,
}
"""What a gauge is over all workers; a sum where nothing is said, and what merely names things
(`…_info`) is the same in all of them."""


class _Merged(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def merge(alive: Iterable[str], dead: Iterable[str], extra: Iterable[Metric]) -> bytes:
    """Add up the pages of workers; of one that died only what it counted, so that no total falls.

    `extra` is added as it is.
    """
    merged: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for page, gauges_count in [*((p, True) for p in alive), *((p, False) for p in dead)]:
        for family in text_string_to_metric_families(page):
            counts = family.type in ("counter", "histogram")
            if not (counts or gauges_count):
                continue
            merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            known = values.setdefault(family.name, {})
            combine = max if family.name.endswith("_info") else _OTHER_THAN_SUM.get(family.name)
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                if key not in known:
                    known[key] = sample.value
                elif combine is None:
                    known[key] += sample.value
                else:
                    known[key] = combine(known[key], sample.value)
    for name, family in merged.items():
        for (sample_name, labels), value in values[name].items():
            family.add_sample(sample_name, dict(labels), value)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Merged([*merged.values(), *extra]))
    return generate_latest(registry)
