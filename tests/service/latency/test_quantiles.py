from hypothesis import given
from hypothesis import strategies as st

from service.latency.quantiles import Blend, Memory, Window, quantile

samples = st.lists(st.floats(0.01, 100), min_size=1, max_size=300)


@given(samples)
def test_quantiles_are_samples_in_order(values):
    ordered = sorted(values)
    found = [quantile(ordered, q) for q in (0.0, 0.5, 0.95, 0.99, 1.0)]
    assert found == sorted(found)
    assert set(found) <= set(values)
    assert (found[0], found[-1]) == (ordered[0], ordered[-1])


def test_one_outlier_in_thirty_is_no_p99():
    assert quantile(sorted([1.0] * 29 + [50.0]), 0.99) == 1.0


def test_a_window_is_bounded_and_forgets():
    window = Window(size=3, horizon_ms=100)
    for now in range(5):
        window.add(now, float(now))
    assert window.fresh(5) == [2.0, 3.0, 4.0]
    assert window.fresh(103.5) == [4.0]
    assert window.fresh(1000) == []


def test_a_window_with_a_gap_begins_anew_after_it():
    window = Window(gap_ms=50)
    for now in (0, 40, 80):
        window.add(now, float(now))
    assert window.fresh(130) == [0.0, 40.0, 80.0]
    assert window.fresh(131) == []
    window.add(140, 140.0)
    assert window.fresh(141) == [140.0]


def test_others_count_only_while_the_own_samples_are_few():
    own, others = Memory(), Memory()
    blend = Blend(own, others, prior=[1.0], enough=10)
    assert blend.at(0.5, 0) == 1.0
    for _ in range(20):
        others.add(0, 3.0)
    assert blend.at(0.5, 1000) == 3.0
    for _ in range(20):
        own.add(1000, 2.0)
    assert blend.at(0.99, 1001) == 2.0


def test_old_samples_give_way_to_the_prior():
    own = Memory(horizon_ms=1000)
    blend = Blend(own, prior=[1.0], enough=5)
    for _ in range(10):
        own.add(0, 9.0)
    assert blend.at(0.5, 0) == 9.0
    assert blend.at(0.5, 5000) == 1.0


def test_nothing_known_is_none():
    assert Blend(Memory()).at(0.5, 0) is None


def test_samples_under_load_come_first_and_are_gone_within_a_second():
    own = Memory()
    blend = Blend(own, prior=[1.0], enough=10)
    for _ in range(50):
        own.add(0, 1.1)
    for now in range(20):
        own.add(now, 8.0, loaded=True)
    assert blend.at(0.5, 20) == 8.0
    assert blend.at(0.5, 700) == 8.0
    assert blend.at(0.99, 1000) == 1.1
    assert own.fresh(1000) == [1.1] * 50


def test_what_is_slow_under_load_is_taken_to_be_so_for_its_kind():
    own, kind = Memory(), Memory()
    blend = Blend(own, kind, prior=[1.0], enough=10)
    for _ in range(50):
        own.add(0, 1.1)
        kind.add(0, 5.0, loaded=True)
    assert blend.at(0.5, 0) == 5.0
    assert blend.at(0.5, 1000) == 1.1


def test_a_slow_run_does_not_count_twice():
    own, kind = Memory(), Memory()
    for ratio in [1.0] * 20 + [9.0]:
        own.add(0, ratio)
        kind.add(0, ratio)
    assert Blend(own, kind).at(0.99, 0) == 1.0
