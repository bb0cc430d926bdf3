"""The facts as Prometheus metrics, made when someone asks; nothing here is on a request's path.

`docs/metrics.md` lists them all.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from service.observability.ledger import Accuracy, Histogram, Ledger
from service.processes.merging import merged, write

if TYPE_CHECKING:
    from service.processes.crew import Facts
    from service.serving.deployment import Deployment
    from service.serving.service import Service

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily | InfoMetricFamily


def _histogram(
    name: str, help_text: str, labels: list[str], series: Iterable[tuple[list[str], Histogram]]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, help_text, labels=labels)
    for values, histogram in series:
        family.add_metric(values, histogram.cumulative(), histogram.sum)
    return family


def _counter(
    name: str, help_text: str, labels: list[str], series: Iterable[tuple[list[str], float]]
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, help_text, labels=labels)
    for values, value in series:
        family.add_metric(values, value)
    return family


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text)
    family.add_metric([], value)
    return family


def _requests(ledger: Ledger) -> Iterator[Family]:
    labels = ["resolution", "mode", "outcome"]
    yield _counter(
        "san_requests",
        "Requests by operating point and outcome.",
        labels,
        ((list(key), float(n)) for key, n in ledger.requests.items()),
    )
    yield _histogram(
        "san_request_duration_seconds",
        "First byte received to first byte sent, by operating point and outcome.",
        labels,
        ((list(key), h) for key, h in ledger.duration.items()),
    )
    yield _histogram(
        "san_stage_duration_seconds",
        "Time per stage of answered requests.",
        ["stage"],
        [*(([stage], h) for stage, h in ledger.stages.items()), (["overhead"], ledger.overhead)],
    )
    yield _counter(
        "san_budgets",
        "Answered requests by what became of their budget (met, missed, infeasible, none).",
        ["result"],
        (([r], float(ledger.budgets[r])) for r in ("met", "missed", "infeasible", "none")),
    )
    yield _histogram(
        "san_prediction_ratio",
        "Time spent over time predicted: above 1 the prediction was too hopeful.",
        [],
        [([], ledger.prediction_error)],
    )
    yield _counter(
        "san_errors",
        "Requests that ended in a problem, by its type.",
        ["type"],
        (([kind], float(n)) for kind, n in ledger.errors.items()),
    )


def _accuracy(ledger: Ledger) -> Iterator[Family]:
    for name, help_text, value in (
        (
            "san_expected_accuracy_sum",
            "Sum of the expected accuracy of answers.",
            ledger.expected_accuracy_sum,
        ),
        (
            "san_expected_accuracy_count",
            "Answers with an expected accuracy.",
            ledger.expected_accuracy_count,
        ),
        ("san_accuracy_given_up_sum", "Sum of the accuracy given up to load.", ledger.given_up_sum),
        (
            "san_accuracy_given_up_count",
            "Answers whose resolution was lowered by load.",
            ledger.given_up_count,
        ),
    ):
        yield _counter(name, help_text, [], [([], float(value))])
    yield from _truth("san_feedback", "Answers with ground truth", ledger.feedback)
    yield _counter(
        "san_feedback_expected",
        "Answers with ground truth: sum of their expected accuracy.",
        ["resolution"],
        (([label], entry.expected) for label, entry in ledger.feedback.items()),
    )
    yield from _truth("san_agreement", "Sampled answers re-run at the best point", ledger.agreement)


def _truth(name: str, what: str, table: dict[str, Accuracy]) -> Iterator[Family]:
    def series(field: str) -> list[tuple[list[str], float]]:
        return [([label], float(getattr(entry, field))) for label, entry in table.items()]

    yield _counter(f"{name}_known", f"{what}.", ["resolution"], series("known"))
    yield _counter(f"{name}_top1", f"{what}: first class right.", ["resolution"], series("right"))
    yield _counter(
        f"{name}_top5", f"{what}: among the first five.", ["resolution"], series("right_in_top5")
    )


def _load(service: Service) -> Iterator[Family]:
    admission, load = service.admission, service.machinery.load
    yield _gauge("san_inflight_requests", "Requests inside.", admission.inside)
    yield _gauge("san_inflight_bytes", "Bytes of request bodies inside.", admission.bytes)
    yield _gauge(
        "san_backlog_seconds",
        "Time the work in flight will take.",
        load.drain_ms(service.clock()) / 1000,
    )
    yield _gauge("san_workers", "Processes that serve the port.", 1)
    yield _counter(
        "san_worker_restarts",
        "Workers that were started in the place of one that died.",
        [],
        [([], float(service.crew.successor))],
    )
    yield _gauge("san_ready", "1 if the service is ready.", float(service.is_ready))
    yield _gauge(
        "san_loop_lag_seconds",
        "How late the event loop was when last looked at.",
        service.loop_lag_s,
    )
    yield _counter(
        "san_reloads",
        "Bundle swaps by result (swapped, failed).",
        ["result"],
        (([r], float(service.ledger.reloads[r])) for r in ("swapped", "failed")),
    )
    yield _histogram(
        "san_batch_size", "Requests per run of the engine.", [], [([], service.ledger.batches)]
    )


def _deployment(service: Service, deployment: Deployment) -> Iterator[Family]:
    facts, cache = deployment.cache.facts, deployment.cache
    yield _gauge(
        "san_queue_depth", "Decoded requests that wait for the engine.", deployment.loop.depth
    )
    for name, help_text, value in (
        ("hits", "Weights found in the cache.", facts.hits),
        ("misses", "Weights that had to be generated.", facts.misses),
        ("evictions", "Networks evicted to make room.", facts.evictions),
        ("failures", "Networks that could not be built.", facts.failures),
    ):
        yield _counter(f"san_weight_cache_{name}", help_text, [], [([], float(value))])
    yield _gauge("san_weight_cache_bytes", "Bytes that cached main networks occupy.", cache.bytes)
    yield _gauge(
        "san_weight_cache_capacity_bytes", "Bytes the cache may hold.", cache.capacity_bytes
    )
    yield _gauge("san_weight_cache_networks", "Networks in the cache.", len(cache))
    yield _histogram(
        "san_weight_build_duration_seconds",
        "Generating, folding and compiling one network.",
        [],
        [([], service.ledger.builds)],
    )
    now = service.clock()
    yield _gauge(
        "san_latency_drift_ratio",
        "Recent latencies over those measured at start; 1: nothing changed.",
        deployment.model.drift(now),
    )
    labels = ["resolution", "mode", "precision"]
    latency = GaugeMetricFamily(
        "san_point_latency_seconds",
        "Predicted forward time alone, per frontier point and quantile.",
        labels=[*labels, "quantile"],
    )
    accuracy = GaugeMetricFamily(
        "san_point_accuracy", "Measured accuracy, per frontier point.", labels=labels
    )
    for listing in deployment.frontier:
        point = listing.point
        values = [str(point.resolution), str(point.mode), point.precision]
        for q in (0.5, 0.95, 0.99):
            latency.add_metric(
                [*values, str(q)], deployment.model.forward_ms(listing.shape, 1, q, now) / 1000
            )
        if listing.accuracy is not None:
            accuracy.add_metric(values, listing.accuracy)
    yield latency
    yield accuracy
    info = InfoMetricFamily("san_model", "Which bundle serves, on what.")
    info.add_metric(
        [],
        {
            "name": deployment.manifest.name,
            "version": deployment.manifest.version,
            "sha256": deployment.sha256,
            "engine": deployment.engine.name,
            "device": deployment.engine.device,
        },
    )
    yield info


class _ServiceCollector(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Any]:
        """Every family, from the facts as they stand."""
        service = self._service
        yield from _requests(service.ledger)
        yield from _accuracy(service.ledger)
        yield from _load(service)
        if service.deployment is not None:
            yield from _deployment(service, service.deployment)


class Exporter:
    """Renders the metrics of one service, of all its workers if there are several."""

    def __init__(self, service: Service) -> None:
        self._crew = service.crew
        self._crew.on("count", self._count)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_ServiceCollector(service))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    async def render(self, accept: str) -> tuple[bytes, str]:
        """The body and its content type."""
        encode, content_type = choose_encoder(accept)
        directory = self._crew.directory
        if directory is None:
            return encode(self._registry), content_type
        await self._crew.ask("count")
        await self._count({})
        return await asyncio.to_thread(lambda: encode(merged(directory))), content_type

    async def _count(self, _: Facts) -> Facts:
        """Write down what was counted, for whichever worker is asked to tell."""
        assert self._crew.directory is not None
        write(self._registry.collect(), self._crew.directory, os.getpid())
        return {}
