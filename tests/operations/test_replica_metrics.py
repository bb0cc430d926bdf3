"""What a Ray replica tells of a request, with stand-ins for Ray's metrics."""

from types import SimpleNamespace

import pytest

from deploy.ray_serve.replica_metrics import ReplicaMetrics
from san_core.frontier import OperatingPoint
from service.observability.ledger import SECONDS, Ledger
from service.request.request import Outcome, Request, Timing
from service.request.terms import Terms
from service.settings import Settings
from tests.service.conftest import picture, serving, write_bundle


class Metric:
    """Keeps what it is told, as strict about it as Ray."""

    def __init__(self, made, name, description, boundaries=None, tag_keys=()):
        assert isinstance(tag_keys, tuple)
        assert description.endswith(".")
        self.boundaries = boundaries
        self._tag_keys = set(tag_keys)
        self.told = []
        made[name] = self

    def _record(self, value, tags):
        assert set(tags or {}) == self._tag_keys
        assert all(isinstance(tag, str) for tag in (tags or {}).values())
        self.told.append((value, *(tags or {}).values()))

    def inc(self, value=1.0, tags=None):
        assert value > 0, "Ray refuses this"
        self._record(value, tags)

    def observe(self, value, tags=None):
        self._record(value, tags)

    def set(self, value, tags=None):
        self._record(value, tags)


@pytest.fixture
def made():
    """The metrics by name."""
    return {}


@pytest.fixture
def metrics(made):
    def maker(*arguments, **options):
        return Metric(made, *arguments, **options)

    return ReplicaMetrics(SimpleNamespace(Counter=maker, Gauge=maker, Histogram=maker))


@pytest.fixture
def ledger(metrics):
    followed = Ledger(resolutions={96, 224})
    metrics.follow(followed)
    return followed


def record(outcome=Outcome.ANSWERED, resolution=96, **facts):
    point = OperatingPoint(resolution) if resolution else None
    facts = {"timing": Timing(total=20.0), "terms": Terms(budget_ms=50.0)} | facts
    return Request("id", outcome=outcome, point=point, **facts)


def told(made):
    """What was told, without the metrics that nothing was told to."""
    return {name: metric.told for name, metric in made.items() if metric.told}


def test_an_answer_counts_with_its_time_budget_and_accuracy(ledger, made):
    ledger.observe(record(met=True, expected_accuracy=0.7, given_up=0.05))
    mode = str(OperatingPoint(96).mode)
    assert told(made) == {
        "san_requests": [(1, "96", mode, "answered")],
        "san_request_duration_seconds": [(0.02, "96", mode, "answered")],
        "san_budgets": [(1, "met")],
        "san_expected_accuracy_sum": [(0.7,)],
        "san_expected_accuracy_count": [(1,)],
        "san_accuracy_given_up_sum": [(0.05,)],
        "san_accuracy_given_up_count": [(1,)],
    }
    assert made["san_request_duration_seconds"].boundaries == list(SECONDS)


def test_a_refusal_counts_with_its_reason_and_buys_no_accuracy(ledger, made):
    ledger.observe(record(Outcome.OVERLOADED, resolution=None, error="overloaded"))
    assert told(made) == {
        "san_requests": [(1, "none", "none", "overloaded")],
        "san_request_duration_seconds": [(0.02, "none", "none", "overloaded")],
        "san_budgets": [(1, "refused")],
        "san_errors": [(1, "overloaded")],
    }


def test_every_request_counts_once(ledger, made):
    for met in (True, False, True):
        ledger.observe(record(met=met))
    assert made["san_budgets"].told == [(1, "met"), (1, "missed"), (1, "met")]
    assert len(made["san_requests"].told) == sum(ledger.requests.values()) == 3
    assert ledger.budgets == {("met", "none"): 2, ("missed", "none"): 1}


def test_labels_are_those_of_the_bundle_that_is_served_by_then(ledger, made):
    ledger.observe(record(resolution=100))
    ledger.resolutions = {100}
    ledger.observe(record(resolution=100))
    assert [entry[1] for entry in made["san_requests"].told] == ["other", "100"]


def test_an_accuracy_of_nothing_is_counted_but_not_added(ledger, made):
    ledger.observe(record(met=True, expected_accuracy=0.0))
    assert made["san_expected_accuracy_sum"].told == []
    assert made["san_expected_accuracy_count"].told == [(1,)]


def test_the_moment_is_told_as_gauges(metrics, made):
    metrics.look(ready=True, inside=3)
    assert told(made) == {"san_ready": [(1.0,)], "san_inflight_requests": [(3.0,)]}


def test_the_service_feeds_them(metrics, made, tmp_path):
    settings = Settings(
        bundle=write_bundle(tmp_path / "tiny.safetensors"),
        cache_dir=tmp_path,
        engine="torch",
        engine_threads=1,
        access_log=False,
        patience_ms=60_000,
    )
    with serving(settings) as running, running.client() as client:
        metrics.follow(running.service.ledger)
        assert client.post("/classify", content=picture()).status_code == 200
        assert client.post("/classify", content=b"no image").status_code >= 400
    outcomes = [entry[-1] for entry in made["san_request_duration_seconds"].told]
    assert outcomes == ["answered", "rejected"]
    assert made["san_budgets"].told == [(1, "none")]
