"""OpenTelemetry spans, if its SDK is installed and set up: one per request, one per stage within.

Made from the record after the answer is sent, with the times that were taken anyway, so tracing
adds nothing to a request's latency. A `traceparent` header makes the caller's span the parent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from service.request.request import STAGES, Outcome, Request
from service.runtime.clock import Clock

Trace = Callable[[Request], None]

_FAILURES = (Outcome.FAILED, Outcome.EXPIRED)


def make_trace(clock: Clock, provider: Any = None) -> Trace | None:
    """What turns a record into spans; None without the SDK."""
    try:
        import opentelemetry.sdk  # noqa: F401
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return None

    tracer = trace.get_tracer("san-serve", tracer_provider=provider)
    propagator = TraceContextTextMapPropagator()

    def observe(record: Request) -> None:
        """Rebuild the request's spans on the wall clock."""
        if provider is None and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            return  # installed, but not set up
        end = time.time_ns() - int((clock() - record.started_ms - record.timing.total) * 1e6)
        begin = end - int(record.timing.total * 1e6)
        carrier = {"traceparent": record.traceparent} if record.traceparent else {}
        span = tracer.start_span(
            "classify",
            context=propagator.extract(carrier),
            kind=trace.SpanKind.SERVER,
            start_time=begin,
            attributes=_attributes(record),
        )
        if record.outcome in _FAILURES:
            span.set_status(trace.StatusCode.ERROR, record.error)
        inside = trace.set_span_in_context(span)
        at = begin
        for stage in STAGES:
            took = int(getattr(record.timing, stage) * 1e6)
            if took:
                child = tracer.start_span(stage, context=inside, start_time=at)
                child.end(at + took)
                at += took
        span.end(end)

    return observe


def _attributes(record: Request) -> dict[str, str | int | float | bool]:
    found: dict[str, str | int | float | bool] = {
        "san.request_id": record.request_id,
        "san.outcome": str(record.outcome),
        "http.response.status_code": record.status,
    }
    if record.point is not None:
        found |= {
            "san.resolution": record.point.resolution,
            "san.mode": str(record.point.mode),
            "san.precision": record.point.precision,
            "san.batch": record.batch,
            "san.weights_cached": record.cached,
        }
    if record.terms.budget_ms is not None:
        found |= {"san.budget_ms": record.terms.budget_ms, "san.budget_met": record.met}
    return found
