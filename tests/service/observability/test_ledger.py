"""What is counted, and under which name."""

import pytest

from san_core.frontier import OperatingPoint
from service.observability.ledger import Histogram, Ledger
from service.request.request import Idle, Outcome, Request, Timing
from service.request.terms import Terms


def record(outcome=Outcome.ANSWERED, **facts):
    facts = {
        "terms": Terms(budget_ms=20.0),
        "timing": Timing(total=30.0),
        "point": OperatingPoint(96),
        "model_version": "7",
        "idle": Idle(feasible=True, accuracy=0.7),
    } | facts
    return Request("id", outcome=outcome, **facts)


@pytest.mark.parametrize(
    ("facts", "result"),
    [
        ({"met": True}, "met"),
        ({"predicted_ms": 10.0}, "missed"),
        # Foreseen, because the host became slow: still a miss, for when idle it kept such budgets.
        ({"predicted_ms": 40.0}, "missed"),
        ({"idle": Idle(feasible=False, accuracy=None)}, "infeasible"),
        ({"idle": Idle(feasible=False, accuracy=None), "predicted_ms": 10.0}, "infeasible"),
        ({"terms": Terms()}, "none"),
        ({"outcome": Outcome.EXPIRED}, "missed"),
        ({"outcome": Outcome.OVERLOADED, "idle": None}, "refused"),
        ({"outcome": Outcome.IMPOSSIBLE}, "refused"),
        ({"idle": None, "predicted_ms": 40.0}, "infeasible"),  # pinned: the client's choice
        ({"idle": None, "predicted_ms": 10.0}, "missed"),
    ],
)
def test_what_became_of_a_budget(facts, result):
    ledger = Ledger()
    ledger.observe(record(**facts))
    assert ledger.budgets == {(result, "7"): 1}


def test_a_request_that_was_turned_away_for_what_it_is_has_no_budget_to_count():
    ledger = Ledger()
    ledger.observe(record(Outcome.REJECTED, model_version=""))
    assert not ledger.budgets
    assert set(ledger.requests) == {("other", "proxy", "rejected", "none")}


def test_an_answer_falls_short_of_what_an_idle_host_buys():
    ledger = Ledger()
    for accuracy in (0.7, 0.69, 0.6):
        ledger.observe(record(met=True, expected_accuracy=accuracy))
    assert ledger.accuracy_served == {("kept", "7"): 2, ("short", "7"): 1}
    assert ledger.shortfall_sum == pytest.approx(0.11)


def test_a_bucket_remembers_its_last_trace():
    trace = "0af7651916cd43dd8448eb211c80319c"
    ledger = Ledger()
    ledger.observe(record(traceparent=f"00-{trace}-b7ad6b7169203331-01"))
    ledger.observe(record(traceparent="nonsense"))
    (histogram,) = ledger.duration.values()
    assert [x for _, _, x in histogram.cumulative() if x] == [(trace, 0.03)]
    assert histogram.cumulative()[-1][:2] == ("+Inf", 2.0)


def test_a_bound_belongs_to_its_bucket():
    histogram = Histogram((1.0, 2.0))
    for value in (1.0, 1.5, 9.0):
        histogram.observe(value)
    assert [count for _, count, _ in histogram.cumulative()] == [1, 2, 3]
