import random
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.latency.quantiles import LEARNING, Factor, Outcomes, Spread, Spreads, quantile

samples = st.lists(st.floats(0.01, 100), min_size=1, max_size=300)


@given(samples)
def test_quantiles_are_samples_in_order(values):
    ordered = sorted(values)
    found = [quantile(ordered, q) for q in (0.0, 0.5, 0.95, 0.99, 1.0)]
    assert found == sorted(found)
    assert set(found) <= set(values)
    assert (found[0], found[-1]) == (ordered[0], ordered[-1])


def test_one_outlier_in_a_hundred_is_no_p99():
    assert quantile(sorted([1.0] * 99 + [50.0]), 0.99) == 1.0


def test_a_factor_follows_the_median_and_not_an_outlier():
    factor = Factor()
    for _ in range(60):
        factor.learn(2.0)
    assert factor.value == pytest.approx(2.0, rel=0.01)
    factor.learn(100.0)
    assert factor.value < 2.1


@given(samples)
def test_the_chance_to_be_in_time_rises_with_the_time_there_is(values):
    spread = Spread(0.99)
    for now, value in enumerate(values):
        spread.learn(now, value)
    chances = [spread.probability(left, 1.0) for left in (-1.0, 0.01, 0.5, 1.0, 2.0, 50.0, 1e4)]
    assert chances == sorted(chances)
    assert 0.0 <= chances[0] <= chances[-1] <= 1.0
    assert spread.probability(1.001 * spread.bound_ms(4.0), 4.0) >= spread.target - 0.005


@pytest.mark.parametrize("spread_of", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_promise_is_kept_whatever_the_distribution(spread_of, seed):
    chance, spread, kept, promised = random.Random(seed), Spread(0.99), 0, 0.0
    for now in range(6000):
        ratio = chance.lognormvariate(0.0, spread_of)
        kept += ratio <= spread.bound
        promised += spread.target
        spread.learn(now, ratio)
    # What takes eight times its median is the host's doing, and no promise covers it.
    assert promised / 6000 - 0.01 <= kept / 6000 <= 0.999
    assert promised / 6000 == pytest.approx(0.99, abs=0.03)


def test_a_distribution_that_changes_is_followed():
    chance, spread = random.Random(1), Spread(0.99)
    for now in range(1000):
        spread.learn(now, chance.lognormvariate(0.0, 0.1))
    narrow = spread.bound
    for now in range(1000, 1500):
        spread.learn(now, chance.lognormvariate(0.5, 0.3))
    assert spread.bound > 1.8 * narrow


def test_a_noisy_start_is_forgotten_within_so_many_quiet_answers():
    spread = Spread(0.99)
    for now in range(200):
        spread.learn(now, 5.0 if now % 3 else 1.0)
    assert spread.bound > 4
    for now in range(200, 200 + LEARNING.samples):
        spread.learn(now, 1.0)
    assert spread.bound < 1.8


def test_old_samples_make_room_for_the_prior_no_further_than_needed():
    spread = Spread(0.99)
    for now in range(100):
        spread.learn(now, 3.0)
    spread.learn(1e9, 1.0)
    assert spread.within(1.5) < 0.2  # a quarter of the window stays until new samples come


def test_broken_promises_widen_at_once_and_kept_ones_narrow_slowly():
    busy = Outcomes(0.99)
    before = busy.bound_ms(10.0)
    busy.learn(0.0, kept=False)
    assert busy.bound_ms(10.0) > 1.04 * before
    for _ in range(99):
        busy.learn(0.0, kept=True)
    assert busy.bound_ms(10.0) == pytest.approx(before, rel=0.01)


def test_time_alone_undoes_broken_promises():
    """Where all are refused no promise is kept either: nothing but time can show better days."""
    busy = Outcomes(0.99)
    before = busy.bound_ms(10.0)
    for _ in range(100):
        busy.learn(0.0, kept=False)
    assert busy.bound_ms(10.0) == pytest.approx(before * exp(LEARNING.roomier))
    busy.forget(5 * LEARNING.outcome_ms)
    assert busy.bound_ms(10.0) == pytest.approx(before, rel=0.01)


def test_under_load_more_time_is_a_better_chance():
    busy = Outcomes(0.99)
    chances = [busy.probability(left, 10.0) for left in (-10.0, 0.0, 5.0, 10.0, 20.0, 80.0)]
    assert chances == sorted(chances)
    assert busy.probability(busy.bound_ms(10.0), 10.0) == pytest.approx(0.99)


def test_errors_of_a_long_queue_average_out():
    busy = Outcomes(0.99)
    factors = [busy.bound_ms(median) / median for median in (2.0, 5.0, 10.0, 20.0, 40.0)]
    assert factors == sorted(factors, reverse=True)
    assert factors[0] > 2.5
    assert factors[-1] < 1.45
    assert busy.bound_ms(1000.0) / 1000.0 == pytest.approx(factors[-1])  # but not all of them do


def test_alone_and_busy_are_told_apart():
    spreads = Spreads(0.99)
    assert spreads.of(alone=True) is spreads.alone
    assert spreads.of(alone=False) is spreads.busy
