from itertools import islice

import pytest

from benchmarks.driving import soak
from benchmarks.driving.open_loop import Sample
from benchmarks.driving.wire import Answer
from benchmarks.reporting.results import Report

RESOLUTIONS = (64, 224)


def samples(**counts: int) -> list[Sample]:
    return [
        Sample(0.0, 1.0, int(status[1:]), 0.0, None)
        for status, n in counts.items()
        for _ in range(n)
    ]


def told(found: list[Sample], memory: list[float], wanted: int) -> Report:
    report = Report("budgets", "Budgets", "x", quick=True)
    trace = [(float(second), mb) for second, mb in enumerate(memory)]
    soak.tell(report, found, trace, len(memory) - 1.0, wanted)
    return report


def test_the_soak_is_judged_by_what_was_sent_answered_added_and_broken():
    report = told(samples(_200=60, _429=30, _400=10), [100.0] * 21, 100)
    assert report.data["soak"]["answered"] == 60
    assert report.data["soak"]["refused"] == 30
    assert [check.measured for check in report.checks] == [100, 60, 0, 0]
    assert all(check.holds for check in report.checks)


@pytest.mark.parametrize(
    ("found", "memory", "wanted", "fails"),
    [
        (samples(_200=90), [100.0] * 21, 100, "of 100 requests sent in the soak"),
        (samples(_200=40, _429=60), [100.0] * 21, 100, "requests answered in the soak"),
        (
            samples(_200=100),
            [100.0 + 10 * second for second in range(21)],
            100,
            "memory added in the soak's second half",
        ),
        (
            samples(_200=99, _503=1),
            [100.0] * 21,
            100,
            "5xx answers or broken connections in the soak",
        ),
    ],
)
def test_each_of_them_can_fail(found, memory, wanted, fails):
    report = told(found, memory, wanted)
    assert [check.claim for check in report.checks if not check.holds] == [fails]


def test_memory_that_comes_in_the_first_half_is_no_leak():
    report = told(samples(_200=100), [100.0, *[600.0] * 20], 100)
    assert all(check.holds for check in report.checks)


def test_most_requests_have_a_budget_that_can_be_kept_and_pins_are_those_that_were_warmed():
    drawn = list(islice(soak.mix(RESOLUTIONS), 4000))
    lines = [request.split(b" HTTP/1.1", 1)[0].decode() for request in drawn]
    kept = [line for line in lines if line.endswith(("budget_ms=20", "budget_ms=50", "ms=100"))]
    assert len(kept) > 0.9 * len(lines)
    pinned = {line for line in lines if "resolution=" in line}
    warmed = {r.split(b" HTTP", 1)[0].decode() for r in soak.pins(b"", RESOLUTIONS)}
    assert pinned == warmed


def test_warming_asks_until_the_network_is_there(monkeypatch):
    states = iter(["generated", "generated", "cached", "cached"])
    sent = []

    class Client:
        def __init__(self, port: int) -> None:
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def send(self, request: bytes) -> Answer:
            sent.append(request)
            return Answer(200, f"HTTP/1.1 200 OK\r\nx-san-weights: {next(states)}".encode(), b"")

    monkeypatch.setattr(soak, "Client", Client)
    monkeypatch.setattr(soak.time, "sleep", lambda _: None)
    soak.warm(0, [b"a", b"b"])
    assert sent == [b"a", b"a", b"a", b"b"]
