from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.scheduling.pricing import Host
from tests.service.scheduling.points import LISTINGS, listing, table


def test_the_price_is_nothing_once_the_share_pays_for_the_best():
    costs = table()
    assert costs.price(costs.hull[-1][0]) == 0.0
    assert costs.price(1e9) == 0.0


def test_below_the_floor_a_millisecond_is_worth_what_the_floor_buys_with_it():
    costs = table()
    floor_ms, accuracy = costs.hull[0]
    assert costs.price(0.0) == pytest.approx(accuracy / floor_ms)


@given(st.lists(st.floats(0, 100), min_size=2, max_size=2).map(sorted))
def test_the_more_time_there_is_the_cheaper_it_is(shares):
    costs = table()
    assert costs.price(shares[0]) >= costs.price(shares[1])


def test_the_hull_is_concave_and_no_point_lies_above_it():
    hull = [(0.0, 0.0), *table().hull]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(hull)]
    assert all(low >= high for low, high in pairwise(slopes[1:]))


def test_what_a_request_costs_in_any_case_raises_the_floor():
    """With a dear decoding on the same cores a tiny input saves little."""
    cheap, dear = table(decode_ms=0.1), table(decode_ms=20.0)
    assert cheap.hull[0][1] < dear.hull[0][1] == 0.75


def test_an_engine_that_decoding_cannot_feed_has_its_best_point_as_the_floor():
    device = table(host=Host(4, 1, shared=False), decode_ms=30.0)
    assert device.hull == ((30.0, 0.75),)
    assert device.price(30.0) == 0.0


def test_float_is_a_luxury_where_int8_is_as_accurate_within_the_error():
    costs = table([*LISTINGS, listing(224, "int8", 0.745)])
    assert [c.luxury for c in costs.points] == [False, False, False, True, False]
    costs = table([*LISTINGS, listing(224, "int8", 0.70)])
    assert not any(c.luxury for c in costs.points)
