"""What a replica says of itself."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.fleet.headroom import Headroom, few, parse

ROOM = Headroom(((0.25, 4.0), (0.5, 8.0), (0.75, 20.0)), 1.5, 6.0, 0.01, 120.0, 0.4)


@pytest.mark.parametrize(
    ("budget_ms", "accuracy"), [(3.9, 0.0), (4.0, 0.25), (8.0, 0.5), (20.0, 0.75), (100.0, 0.75)]
)
def test_a_budget_buys_what_fits(budget_ms, accuracy):
    assert ROOM.expected(budget_ms) == accuracy


def test_between_two_points_it_is_in_proportion():
    assert ROOM.expected(6.0) == pytest.approx(0.375)
    assert ROOM.expected(14.0) == pytest.approx(0.625)


def test_the_header_says_the_same():
    assert parse(ROOM.header()) == ROOM
    assert ROOM.header().startswith(b"TEXT application_utilization=0.400,rps_fractional=120.0,")


@pytest.mark.parametrize(
    "value", [b"", b"TEXT", b"JSON {}", b"TEXT a=b", b"TEXT cpu_utilization=1"]
)
def test_what_is_not_ours_is_not_taken_for_it(value):
    assert parse(value) is None


numbers = st.floats(0, 1)


@given(st.lists(st.tuples(numbers, st.floats(0.1, 1000)), min_size=1, max_size=30))
def test_a_few_points_stand_for_all(points):
    kept = few(points)
    assert 1 <= len(kept) <= 6
    assert set(kept) <= set(points)
    best = max(points, key=lambda p: (p[0], -p[1]))
    assert kept[-1][0] == best[0]
    assert all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(kept))
