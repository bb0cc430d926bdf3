import asyncio

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from service.processes.metrics import merge
from service.processes.workers import UnixSockets, WorkerRelay

ONE = """\
# HELP san_requests_total Requests.
# TYPE san_requests_total counter
san_requests_total{outcome="answered"} 3.0
# HELP san_ready Ready.
# TYPE san_ready gauge
san_ready 1.0
# HELP san_inflight_requests Inside.
# TYPE san_inflight_requests gauge
san_inflight_requests 2.0
# HELP san_model_info Model.
# TYPE san_model_info gauge
san_model_info{name="tiny"} 1.0
# HELP san_seconds Time.
# TYPE san_seconds histogram
san_seconds_bucket{le="0.1"} 1.0
san_seconds_bucket{le="+Inf"} 2.0
san_seconds_count 2.0
san_seconds_sum 0.5
"""
OTHER = ONE.replace("3.0", "5.0").replace("san_ready 1.0", "san_ready 0.0")


def _values(page):
    return {
        (sample.name, sample.labels.get("le", "")): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_counts_and_times_add_up_and_gauges_mean_what_they_say():
    extra = GaugeMetricFamily("san_workers", "Processes.", value=2)
    found = _values(merge([ONE, OTHER], [], [extra]))
    assert found["san_requests_total", ""] == 8
    assert found["san_ready", ""] == 0  # not before all are
    assert found["san_inflight_requests", ""] == 4
    assert found["san_model_info", ""] == 1
    assert found["san_seconds_bucket", "0.1"] == 2
    assert found["san_seconds_count", ""] == 4
    assert found["san_seconds_sum", ""] == 1.0
    assert found["san_workers", ""] == 2


def test_what_a_dead_worker_counted_stays_and_its_gauges_go():
    found = _values(merge([ONE], [OTHER], []))
    assert found["san_requests_total", ""] == 8
    assert found["san_ready", ""] == 1
    assert found["san_inflight_requests", ""] == 2


def test_a_folder_that_takes_no_file_costs_neither_a_worker_nor_a_scrape(tmp_path):
    async def application(*_):
        raise AssertionError

    relay = WorkerRelay(application, tmp_path / "gone")
    page = relay._merged({"7": "# TYPE san_x_total counter\nsan_x_total 3.0\n"}).decode()
    assert "san_x_total 3.0" in page
    assert "san_workers 1.0" in page
    assert "san_worker_restarts_total 0.0" in page


def test_a_folder_that_takes_no_socket_does_not_keep_a_worker_from_serving(tmp_path, caplog):
    async def answer(question):
        return question

    async def main():
        sockets = UnixSockets(tmp_path / "gone")
        await sockets.open(answer)
        assert await sockets.ask(b"anybody?") == {}
        await sockets.close()

    asyncio.run(main())
    assert "other workers cannot ask this one" in caplog.text
