"""Judging a candidate."""

import pytest

from service.serving.quality.verdict import (
    Bounds,
    Comparison,
    Share,
    against_promotion,
    against_serving,
)

BOUNDS = Bounds()


def facts(**shares):
    made = Comparison()
    good = {
        "agreement": Share(95, 100),
        "expected": Share(70, 100),
        "expected_now": Share(70, 100),
        "forward_ms": Share(200, 100),
        "forward_now_ms": Share(200, 100),
    }
    for name, share in (good | shares).items():
        setattr(made, name, share)
    return made


def test_a_candidate_that_is_as_good_may_take_over():
    assert against_promotion(facts(), BOUNDS) == []


@pytest.mark.parametrize(
    ("shares", "reason"),
    [
        ({"agreement": Share(20, 20)}, "20 of the 50 pictures"),
        ({"agreement": Share(70, 100)}, "agrees"),
        ({"expected": Share(68, 100)}, "0.680, against 0.700"),
        ({"forward_ms": Share(300, 100)}, "1.50 times as long"),
        ({"promises": Share(80, 100)}, "kept 80.0% of 100 budgets"),
        ({"feedback": Share(50, 100), "feedback_expected": Share(70, 100)}, "By feedback 50.0%"),
        ({"same_classes": False}, "classes"),
    ],
)
def test_a_worse_one_may_not_and_is_told_why(shares, reason):
    (said,) = against_promotion(facts(**shares), BOUNDS)
    assert reason in said


@pytest.mark.parametrize(
    ("shares", "must_go"),
    [
        ({"agreement": Share(0, 10)}, False),  # too few to tell
        ({"agreement": Share(15, 20)}, False),  # may be chance
        ({"agreement": Share(10, 40)}, True),
        ({"promises": Share(96, 100)}, False),
        ({"promises": Share(90, 100)}, True),
        ({"expected": Share(10, 100)}, False),  # nothing that happened while it served
    ],
)
def test_only_what_is_sure_ends_a_canary(shares, must_go):
    assert bool(against_serving(facts(**shares), BOUNDS)) == must_go
