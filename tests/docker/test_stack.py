"""The unmodified Dockerfile and compose file, on a real engine, with a real Prometheus."""

from __future__ import annotations

import json
import math
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from benchmarks.servers.bundles import new_version
from tests.docker.containers import Stack
from tests.docker.expressions import (
    DASHBOARDS,
    filled_in,
    panel_expressions,
    panels,
    rule_expressions,
    rules,
)
from tests.docker.traffic import Traffic, picture, post

pytestmark = pytest.mark.docker


def _wait(what: str, seconds: float, condition) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.5)


def test_every_started_service_answers(stack: Stack):
    for name in stack.services:
        state = stack.container(name)["State"]
        assert (state["Status"], state["Health"]["Status"]) == ("running", "healthy")
    version = stack.get("service", "/version")
    assert version["model"]["name"]
    assert stack.get("prometheus", "/api/v1/status/buildinfo")["status"] == "success"
    if "grafana" in stack.services:
        found = {board["uid"] for board in stack.get("grafana", "/api/search", type="dash-db")}
        assert found == {"san-latency", "san-accuracy", "san-weights"}


def test_the_service_is_confined(stack: Stack):
    container = stack.container("service")
    host = container["HostConfig"]
    assert container["Config"]["User"] == "10001:10001"
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert host["Memory"] == 4 << 30
    assert host["NanoCpus"] == 2_000_000_000
    inside = stack.compose(
        "exec", "-T", "service", "sh", "-c",
        "id -u; touch /usr/x 2>&1; touch /opt/san/x 2>&1; touch /data/x /tmp/x && echo fine",
    )  # fmt: skip
    lines = inside.splitlines()
    assert lines[0] == "10001"
    assert sum("Read-only file system" in line for line in lines) == 2
    assert lines[-1] == "fine"


def test_everything_listens_on_this_machine_only(stack: Stack):
    for name in stack.services:
        for bindings in stack.container(name)["NetworkSettings"]["Ports"].values():
            assert {binding["HostIp"] for binding in bindings or []} <= {"127.0.0.1"}


def test_what_was_measured_is_kept_where_the_container_does_not_go(stack: Stack):
    _await_times(stack)


def _await_times(stack: Stack) -> None:
    """Until the times of the whole frontier are on disk.

    Those that others disturbed are taken again first, until nothing shorter is found.
    """
    points = stack.get("service", "/resolutions")["operating_points"]
    wanted = {(p["resolution"], p["precision"]) for p in points if p["frontier"]}

    def kept() -> bool:
        told = stack.compose(
            "exec", "-T", "service", "sh", "-c", "cat /data/latency-*", check=False
        )
        start = told.find("{")
        if start < 0:
            return False
        forward = json.loads(told[start:])["forward"]
        return wanted <= {(entry["resolution"], entry["precision"]) for entry in forward}

    _wait("times on disk", 900, kept)


def test_prometheus_scrapes_the_service_and_evaluates_the_rules(stack: Stack, traffic):
    targets = stack.get("prometheus", "/api/v1/targets")["data"]["activeTargets"]
    assert {(t["labels"]["job"], t["health"]) for t in targets} == {
        ("san-serve", "up"),
        ("prometheus", "up"),
    }
    groups = stack.get("prometheus", "/api/v1/rules")["data"]["groups"]
    loaded = [rule for group in groups for rule in group["rules"]]
    assert len(loaded) == len(rules())
    assert {rule["health"] for rule in loaded} == {"ok"}


def test_the_traffic_was_of_all_kinds(traffic: tuple[Traffic, float, float]):
    sent, _, _ = traffic
    assert sent.statuses[200] > 30
    assert sent.statuses[422] > 0  # impossible budgets
    assert sent.statuses[500] == sent.statuses[0] == 0
    assert len(sent.resolutions) > 3
    assert sent.feedback > 20


def test_buckets_of_latency_are_linked_to_traces(stack: Stack, traffic):
    _, start, end = traffic
    asked = 0
    for board in map(json.loads, map(Path.read_text, DASHBOARDS)):
        for target in (t for panel in panels(board) for t in panel["targets"]):
            if not target.get("exemplar"):
                continue
            query = filled_in(target["expr"])
            series = stack.get(
                "prometheus", "/api/v1/query_exemplars", query=query, start=start, end=end
            )["data"]
            traces = {e["labels"]["trace_id"] for one in series for e in one["exemplars"]}
            assert len(traces) > 5
            asked += 1
    assert asked == 2


@pytest.mark.parametrize(("name", "expr"), panel_expressions())
def test_every_panel_has_data(stack: Stack, traffic, name: str, expr: str):
    _has_data(stack, traffic, expr)


@pytest.mark.parametrize(("name", "expr"), rule_expressions())
def test_every_rule_has_data(stack: Stack, traffic, name: str, expr: str):
    _has_data(stack, traffic, expr)


RARE = (
    *("ALERTS", "changes(", "ratio_30d", "san_candidate_pictures", "san_answer_cache"),
    "san_worker_restarts",
)
"""Alerts, restarts, thirty days, a candidate, a cache that is off, and workers where there is only
one process: nothing to show here."""


def _has_data(stack: Stack, traffic: tuple[Traffic, float, float], expr: str) -> None:
    _, start, end = traffic
    series = stack.query(expr, start, end)  # fails if it cannot be evaluated
    if any(word in expr for word in RARE):
        return
    values = [float(value) for one in series for _, value in one["values"]]
    assert any(math.isfinite(value) for value in values), f"no data for {expr}"


def test_sighup_swaps_the_bundle_without_losing_a_request(stack: Stack, served: Path):
    statuses: list[int] = []
    stop = threading.Event()

    def knock() -> None:
        while not stop.is_set():
            statuses.append(post(stack.url("service", "/classify"), picture(1))[0])

    def swapped() -> bool:
        with urllib.request.urlopen(stack.url("service", "/metrics"), timeout=10) as answer:
            return b'san_reloads_total{result="swapped"} 1.0' in answer.read()

    thread = threading.Thread(target=knock)
    thread.start()
    try:
        new_version(served, "newer")
        stack.compose("kill", "-s", "HUP", "service")
        _wait("the swap", 120, swapped)
    finally:
        stop.set()
        thread.join()
    assert len(statuses) > 1
    assert set(statuses) == {200}


def test_the_bundle_is_reloaded_through_the_bridge_with_a_key(stack: Stack):
    url = stack.url("service", "/admin/reload")
    assert post(url, b"")[0] == 401
    assert post(url, b"", key="secret")[0] == 200


def test_the_service_does_without_prometheus(stack: Stack):
    stack.compose("stop", "--timeout", "5", "prometheus")
    assert post(stack.url("service", "/classify"), picture(2))[0] == 200
    stack.compose("up", "-d", "--pull", "never", "--wait", "prometheus")


def test_stopping_drains_and_a_new_container_is_ready_sooner(stack: Stack):
    """Last: it ends the service that the others use."""
    outcomes: list[int] = []
    stop = threading.Event()

    def knock() -> None:
        while not stop.is_set():
            outcomes.append(post(stack.url("service", "/classify"), picture(3, 1500))[0])

    _await_times(stack)
    threads = [threading.Thread(target=knock) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        _wait("answers", 60, lambda: outcomes.count(200) >= 8)
        stack.compose("stop", "service", timeout=60)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    state = stack.container("service")["State"]
    assert state["ExitCode"] == 0
    assert not state["OOMKilled"]
    # Accepted requests were answered; later ones were told so (503) or found nobody (0).
    assert set(outcomes) <= {200, 503, 0}
    assert "draining" in stack.compose("logs", "service")

    begun = time.monotonic()
    stack.compose("rm", "-f", "service")
    stack.compose("up", "-d", "--pull", "never", "--wait", "service", timeout=900)
    assert time.monotonic() - begun < 600
    assert "measured on this host before" in stack.compose("logs", "service")


def test_two_workers_in_the_same_confinement(stack: Stack):
    """After the last: it makes the container anew."""
    stack.env["SAN_WORKERS"] = "2"
    stack.compose("up", "-d", "--pull", "never", "--wait", "service", timeout=900)
    seen: set[int] = set()

    def both_answer() -> bool:  # the stack is healthy as soon as one of them is ready
        seen.add(stack.get("service", "/version")["pid"])
        return len(seen) == 2

    _wait("both workers", 120, both_answer)
    for seed in range(6):
        assert post(stack.url("service", "/classify"), picture(seed))[0] == 200
    with urllib.request.urlopen(stack.url("service", "/metrics"), timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    assert "san_worker_restarts_total 0.0" in lines
    assert "san_workers 2.0" in lines
    counted = [line.split()[-1] for line in lines if line.startswith("san_requests_total{")]
    assert sum(map(float, counted)) == 6
    stack.compose("stop", "service", timeout=60)
    assert stack.container("service")["State"]["ExitCode"] == 0
