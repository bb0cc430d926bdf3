"""Metrics of several processes as one."""

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.parser import text_string_to_metric_families

from service.observability.ledger import Histogram
from service.processes.merging import forget_gauges, merged, write


def families(requests, depth, ready, lag, seconds, version="1"):
    counter = CounterMetricFamily("san_requests", "Requests.", labels=["outcome"])
    counter.add_metric(["answered"], requests)
    info = InfoMetricFamily("san_model", "Which.")
    info.add_metric([], {"version": version})
    histogram = Histogram((0.1, 1.0))
    for value in seconds:
        histogram.observe(value)
    times = HistogramMetricFamily("san_times", "Times.", labels=["stage"])
    times.add_metric(["decode"], histogram.cumulative(), histogram.sum)
    return [
        counter,
        GaugeMetricFamily("san_queue_depth", "Depth.", depth),
        GaugeMetricFamily("san_ready", "Ready.", ready),
        GaugeMetricFamily("san_loop_lag_seconds", "Lag.", lag),
        times,
        info,
    ]


def read(directory):
    text = generate_latest(merged(directory)).decode()
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_counts_add_up_and_gauges_are_what_they_mean(tmp_path):
    write(families(3, 2, 1, 0.5, [0.05, 0.5]), tmp_path, 1)
    write(families(4, 5, 0, 0.1, [0.05, 7.0]), tmp_path, 2)
    found = read(tmp_path)
    assert found[("san_requests_total", (("outcome", "answered"),))] == 7
    assert found[("san_queue_depth", ())] == 7
    assert found[("san_ready", ())] == 0
    assert found[("san_loop_lag_seconds", ())] == 0.5
    assert found[("san_model_info", (("version", "1"),))] == 1
    for bound, count in (("0.1", 2), ("1.0", 3), ("+Inf", 4)):
        assert found[("san_times_bucket", (("le", bound), ("stage", "decode")))] == count
    assert found[("san_times_count", (("stage", "decode"),))] == 4
    assert found[("san_times_sum", (("stage", "decode"),))] == 7.6


def test_what_the_dead_counted_stays(tmp_path):
    write(families(3, 2, 0, 0.5, [0.05]), tmp_path, 1)
    write(families(4, 5, 1, 0.1, [0.05]), tmp_path, 2)
    forget_gauges(tmp_path, 1)
    found = read(tmp_path)
    assert found[("san_requests_total", (("outcome", "answered"),))] == 7
    assert found[("san_times_count", (("stage", "decode"),))] == 2
    assert found[("san_queue_depth", ())] == 5
    assert found[("san_ready", ())] == 1


def test_series_that_end_are_gone(tmp_path):
    write(families(3, 2, 1, 0.5, [], version="1"), tmp_path, 1)
    write(families(5, 2, 1, 0.5, [], version="2"), tmp_path, 1)
    found = read(tmp_path)
    assert found[("san_requests_total", (("outcome", "answered"),))] == 5
    assert [key for key in found if key[0] == "san_model_info"] == [
        ("san_model_info", (("version", "2"),))
    ]
