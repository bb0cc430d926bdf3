"""The facts as Prometheus metrics, made when someone asks; nothing here is on a request's path.

`docs/metrics.md` lists them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from service.latency.quantiles import TYPICAL_MS
from service.observability.ledger import (
    ACCURACY,
    BUDGETS,
    CANDIDATE,
    RELOADS,
    Accuracy,
    Histogram,
    Ledger,
)
from service.request.request import Outcome
from service.runtime.cgroups import cpu_quota, memory_limit

if TYPE_CHECKING:
    from service.engines.base import Engine
    from service.serving.bundles.deployment import Deployment
    from service.serving.service import Service

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily | InfoMetricFamily
F = TypeVar("F", CounterMetricFamily, GaugeMetricFamily)
Series = Iterable[tuple[list[str], float]]
"""Values of a metric, each with those of its labels."""


def _histogram(
    name: str, help_text: str, labels: list[str], series: Iterable[tuple[list[str], Histogram]]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, help_text, labels=labels)
    for values, histogram in series:
        buckets = [
            (bound, count, Exemplar({"trace_id": trace[0]}, trace[1])) if trace else (bound, count)
            for bound, count, trace in histogram.cumulative()
        ]
        family.add_metric(values, buckets, histogram.sum)
    return family


def _family(kind: type[F], name: str, help_text: str, labels: list[str], series: Series) -> F:
    family = kind(name, help_text, labels=labels)
    for values, value in series:
        family.add_metric(values, value)
    return family


def _counter(name: str, help_text: str, labels: list[str], series: Series) -> Family:
    return _family(CounterMetricFamily, name, help_text, labels, series)


def _total(name: str, help_text: str, value: float) -> Family:
    return _counter(name, help_text, [], [([], value)])


def _gauges(name: str, help_text: str, labels: list[str], series: Series) -> Family:
    return _family(GaugeMetricFamily, name, help_text, labels, series)


def _gauge(name: str, help_text: str, value: float) -> Family:
    return _gauges(name, help_text, [], [([], value)])


def _by_version(
    counted: Mapping[tuple[str, str], int], results: Iterable[str], version: str
) -> Series:
    """Every result of the version that serves, counted or not, and what others have counted."""
    for result, of in dict.fromkeys([*((r, version) for r in results), *counted]):
        yield [result, of], float(counted.get((result, of), 0))


def _requests(ledger: Ledger, version: str) -> Iterator[Family]:
    labels = ["resolution", "mode", "outcome"]
    # Every outcome from the start: what appears with its first event cannot be seen to increase.
    never = dict.fromkeys(("none", "none", str(outcome), "none") for outcome in Outcome)
    yield _counter(
        "san_requests",
        "Requests by operating point, outcome and the bundle's version.",
        [*labels, "version"],
        ((list(key), float(ledger.requests[key])) for key in never | ledger.requests),
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
        "Requests by what became of their budget (met, missed, refused, infeasible, none).",
        ["result", "version"],
        _by_version(ledger.budgets, BUDGETS, version),
    )
    yield _histogram(
        "san_prediction_ratio",
        "Time spent over its predicted median: half of all answers are above 1.",
        [],
        [([], ledger.prediction_error)],
    )
    yield _counter(
        "san_errors",
        "Requests that ended in a problem, by its type.",
        ["type"],
        (([kind], float(n)) for kind, n in ledger.errors.items()),
    )


def _accuracy(ledger: Ledger, version: str) -> Iterator[Family]:
    yield _counter(
        "san_accuracy_served",
        "Answers by whether they are as accurate as what an idle host buys (kept, short).",
        ["result", "version"],
        _by_version(ledger.accuracy_served, ACCURACY, version),
    )
    yield _total(
        "san_expected_accuracy_sum",
        "Sum of the expected accuracy of answers.",
        ledger.expected_accuracy_sum,
    )
    yield _total(
        "san_expected_accuracy_count",
        "Answers with an expected accuracy.",
        ledger.expected_accuracy_count,
    )
    yield _total(
        "san_accuracy_given_up_sum", "Sum of the accuracy given up to load.", ledger.given_up_sum
    )
    yield _total(
        "san_accuracy_given_up_count",
        "Answers whose resolution was lowered by load.",
        ledger.given_up_count,
    )
    yield _total(
        "san_accuracy_shortfall_sum",
        "Sum of the accuracy that an idle host would have bought on top.",
        ledger.shortfall_sum,
    )
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
    admission, schedule = service.admission, service.machinery.schedule
    yield _gauge("san_inflight_requests", "Requests inside.", admission.inside)
    yield _gauge("san_inflight_bytes", "Bytes of request bodies inside.", admission.bytes)
    yield _gauge(
        "san_backlog_seconds",
        "Time the work in flight will take.",
        schedule.drain_ms(service.clock()) / 1000,
    )
    yield _gauge(
        "san_arrival_rate",
        "Images per second that arrive while there is work.",
        1000 * schedule.rate,
    )
    yield _total(
        "san_engine_busy_seconds",
        "Time the engine spent running batches; its rate is the share in use.",
        service.ledger.engine_ms / 1000,
    )
    yield _gauge(
        "san_cpu_quota_cores", "Cores that the CPU quota leaves; 0: no quota.", cpu_quota() or 0.0
    )
    yield _gauge("san_memory_limit_bytes", "Memory limit; 0: none.", memory_limit() or 0)
    yield _gauge("san_ready", "1 if the service is ready.", float(service.is_ready))
    yield _gauge(
        "san_loop_lag_seconds",
        "How late the event loop was when last looked at.",
        service.watchdog.loop_lag_s,
    )
    yield _counter(
        "san_reloads",
        "Bundle swaps by result (swapped, promoted, rolled_back, failed).",
        ["result"],
        (([r], float(service.ledger.reloads[r])) for r in RELOADS),
    )
    yield _gauges(
        "san_bundle_swapped_timestamp_seconds",
        "When a bundle began to serve, was tried or was taken back.",
        ["result", "version"],
        (([event.result, event.version], event.at_s) for event in service.rollout.events),
    )
    yield _counter(
        "san_candidate_pictures",
        "Pictures that a candidate and the bundle that serves answered (same, different).",
        ["result"],
        (([r], float(service.ledger.candidate[r])) for r in CANDIDATE),
    )
    yield _gauge(
        "san_candidate_share",
        "Share of the clients that a candidate serves.",
        service.rollout.share,
    )
    answers = service.answers
    hits, misses = (answers.facts.hits, answers.facts.misses) if answers else (0, 0)
    yield _total("san_answer_cache_hits", "Pictures whose exact answer was known.", hits)
    yield _total("san_answer_cache_misses", "Pictures that were new.", misses)
    yield _gauge(
        "san_answer_cache_bytes",
        "Bytes of exact answers kept.",
        answers.size_bytes if answers else 0,
    )
    yield _histogram(
        "san_batch_size", "Requests per run of the engine.", [], [([], service.ledger.batches)]
    )


def _deployment(service: Service, deployment: Deployment) -> Iterator[Family]:
    facts, cache = deployment.cache.facts, deployment.cache
    yield _gauge(
        "san_queue_depth", "Decoded requests that wait for the engine.", deployment.executor.depth
    )
    yield _total("san_weight_cache_hits", "Weights found in the cache.", facts.hits)
    yield _total("san_weight_cache_misses", "Weights that had to be generated.", facts.misses)
    yield _total("san_weight_cache_evictions", "Networks evicted for others.", facts.evictions)
    yield _total("san_weight_cache_failures", "Networks that could not be built.", facts.failures)
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
    yield from _device(deployment.engine)
    scheduler = deployment.scheduler
    yield _gauge(
        "san_engine_price",
        "What a millisecond of the engine is worth to others, in accuracy; 0: no request waits.",
        scheduler.price,
    )
    yield _gauge("san_promise_target", "Share of promises to be kept.", scheduler.promise)
    promises = scheduler.calibration
    yield _total(
        "san_promises_made", "Requests let in because they would be in time.", promises.promised
    )
    yield _total("san_promises_kept", "Requests let in so that were in time.", promises.kept)
    yield _gauges(
        "san_prediction_bound_ratio",
        "Factor on a predicted median of 10 ms within which the promised share of answers stays.",
        ["state"],
        (
            ([state], spread.bound_ms(TYPICAL_MS) / TYPICAL_MS)
            for state, spread in scheduler.spreads.items()
        ),
    )
    yield _gauge(
        "san_latency_drift_ratio",
        "Recent latencies over those measured at start; 1: nothing changed.",
        deployment.model.drift,
    )
    labels = ["resolution", "mode", "precision"]
    points = [
        ([str(x.point.resolution), str(x.point.mode), x.point.precision], x)
        for x in deployment.frontier
    ]
    alone = [(q, scheduler.whole.alone.at(q)) for q in (0.5, 0.95, 0.99)]
    yield _gauges(
        "san_point_latency_seconds",
        "Predicted time alone, per frontier point: its forward's median, and with the spread of "
        "whole times at the promised share.",
        [*labels, "quantile"],
        (
            ([*values, str(q)], deployment.model.forward_ms(x.shape) / 1000 * spread)
            for values, x in points
            for q, spread in alone
        ),
    )
    yield _gauges(
        "san_point_accuracy",
        "Measured accuracy, per frontier point.",
        labels,
        ((values, x.accuracy) for values, x in points if x.accuracy is not None),
    )
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


def _device(engine: Engine) -> Iterator[Family]:
    """What a GPU's engine tells about itself; the others have nothing of the kind."""
    found: dict[str, float] = engine.metrics() if hasattr(engine, "metrics") else {}
    if found:
        series = (([fact], value) for fact, value in found.items())
        yield _gauges("san_device", "Memory and graphs of the GPU, by fact.", ["fact"], series)


class _ServiceCollector(Collector):
    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Any]:
        """Every family, from the facts as they stand."""
        service = self._service
        deployment = service.deployment
        version = deployment.manifest.version if deployment is not None else "none"
        yield from _requests(service.ledger, version)
        yield from _accuracy(service.ledger, version)
        yield from _load(service)
        if deployment is not None:
            yield from _deployment(service, deployment)


class Exporter:
    """Renders the metrics of one service."""

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_ServiceCollector(service))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The body and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
