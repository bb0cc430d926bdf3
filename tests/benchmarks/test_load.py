import os

import pytest

from benchmarks import load
from benchmarks.driving.arrivals import Arrivals
from benchmarks.peers.registry import Setup
from benchmarks.peers.triton import model_config
from benchmarks.reporting import front_page
from benchmarks.reporting.results import Report


def run(server, arrivals, at, on_time):
    return {
        "server": server, "arrivals": str(arrivals), "load": at, "on_time": on_time,
        "goodput": 100 * on_time, "accuracy": 0.7, "p99": 40.0, "refused": 0.1, "gave_up": 0.0,
        "lag_p99": 1.0, "generator_cpu": 0.1,
    }  # fmt: skip


@pytest.fixture
def told():
    """A run with two peers of which one sheds."""
    made = Report("load", "Under load", "python -m benchmarks.load --peers fastapi --triton")
    shares = {"san-serve": 0.9, "FastAPI": 0.1, "Triton": 0.3}
    made.data.update(
        rate=100.0, one_answer=0.1, longest_wait_ms=34.0,
        capacities={"fastapi throughput": 100.0, "triton throughput": 80.0},
        runs=[
            run(name, kind, at, share)
            for kind in Arrivals for at in load.LOADS for name, share in shares.items()
        ],
    )  # fmt: skip
    return made


def test_every_server_has_a_row_at_every_load_and_the_best_is_compared_with(told):
    load.tell(told, "FastAPI", 50.0)
    text = "\n".join(told.sections)
    assert text.count("| Triton |") == len(Arrivals) * len(load.LOADS)
    assert "Triton refuses what has waited for 34 ms" in text
    assert [round(check.measured, 6) for check in told.checks] == [3.0, 3.0]


def test_the_front_page_says_which_of_them_sheds(told, monkeypatch):
    result = {"command": told.command, "date": "today", **told.data}
    monkeypatch.setattr(front_page, "read", lambda _: result)
    page = front_page.readme()
    assert page.index("san-serve") < page.index("Triton") < page.index("FastAPI")
    assert "no answer in time" not in page
    for fact in told.data["runs"]:
        if fact["server"] == "FastAPI":
            fact["accuracy"] = 0.0
    assert front_page.readme().count("no answer in time") == 2
    assert "Triton is told to refuse what has waited for 34 ms; the others queue" in page


def test_labels_at_the_end_of_lines_do_not_lie_on_each_other():
    ends = {"a": 3.0, "b": 78.0, "c": 3.5, "d": 12.0}
    assert front_page.spread(ends, 8.0) == {"a": 3.0, "c": 11.0, "d": 19.0, "b": 78.0}


def test_a_peer_takes_part_in_its_better_setup():
    found = {
        ("fastapi", Setup.LATENCY): 180.0, ("fastapi", Setup.THROUGHPUT): 280.0,
        ("bentoml", Setup.LATENCY): 150.0, ("bentoml", Setup.THROUGHPUT): 130.0,
    }  # fmt: skip
    assert load.best_setups(found) == {
        "fastapi": (Setup.THROUGHPUT, 280.0),
        "bentoml": (Setup.LATENCY, 150.0),
    }


def test_what_waited_the_longest_can_still_run_within_the_budget():
    cores = os.cpu_count() or 1
    assert load.longest_wait_ms(50.0, Setup.LATENCY, 200.0) == pytest.approx(40.0)
    assert load.longest_wait_ms(50.0, Setup.THROUGHPUT, 200.0) == pytest.approx(
        max(1.0, 50 - 10 * cores)
    )
    assert load.longest_wait_ms(5.0, Setup.LATENCY, 100.0) == 1.0


def test_triton_sheds_only_if_it_is_told_to():
    assert "dynamic_batching" not in model_config(1, None)
    shedding = model_config(2, 34.2)
    assert "timeout_action: REJECT default_timeout_microseconds: 34200 }" in shedding
    assert "count: 2" in shedding
