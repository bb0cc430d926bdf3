import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from san_core.frontier import OperatingPoint
from service.observability.tracing import make_trace
from service.request.request import Outcome, Request, Timing
from service.request.terms import Terms
from tests.service.fakes import FakeClock

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans():
    return InMemorySpanExporter()


@pytest.fixture
def trace(spans):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return make_trace(FakeClock(130.0), provider)


def record(**changes):
    timing = Timing(receive=1.0, queue=0.0, decode=4.0, forward=10.0, total=16.0)
    facts = {"started_ms": 100.0, "timing": timing, "outcome": Outcome.ANSWERED, "status": 200}
    return Request("id", Terms(budget_ms=20.0), **(facts | changes))


def test_a_request_is_a_span_with_a_child_per_stage(trace, spans):
    trace(record(point=OperatingPoint(64), met=True))
    *stages, whole = spans.get_finished_spans()
    assert [s.name for s in stages] == ["receive", "decode", "forward"]
    assert whole.name == "classify"
    assert (whole.end_time - whole.start_time) / 1e6 == pytest.approx(16.0)
    assert all(s.parent.span_id == whole.context.span_id for s in stages)
    assert stages[0].start_time == whole.start_time
    assert stages[1].start_time == stages[0].end_time
    assert whole.attributes["san.resolution"] == 64
    assert whole.attributes["san.budget_met"] is True


def test_the_callers_span_is_the_parent(trace, spans):
    trace(record(traceparent=PARENT))
    whole = spans.get_finished_spans()[-1]
    assert f"{whole.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{whole.parent.span_id:016x}" == PARENT.split("-")[2]


def test_nonsense_in_the_header_starts_a_trace_of_its_own(trace, spans):
    trace(record(traceparent="nonsense"))
    assert spans.get_finished_spans()[-1].parent is None


def test_a_failure_is_marked(trace, spans):
    trace(record(outcome=Outcome.FAILED, status=500, error="service"))
    assert not spans.get_finished_spans()[-1].status.is_ok


def test_without_the_sdk_there_is_no_trace(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert make_trace(FakeClock()) is None
