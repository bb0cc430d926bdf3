from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from san_core.frontier import OperatingPoint
from service.request.terms import OnMiss
from service.scheduling.policy import Option, Situation, Verdict, choose

times = st.floats(0, 500, allow_nan=False)


@st.composite
def frontiers(draw, *, cold=True):
    """Points that are more accurate the slower they are, as a frontier is."""
    n = draw(st.integers(1, 8))
    forward = sorted(draw(st.lists(st.floats(0.1, 300), min_size=n, max_size=n, unique=True)))
    accuracy = sorted(draw(st.lists(st.floats(0, 1), min_size=n, max_size=n, unique=True)))
    decode, overhead = draw(st.floats(0, 50)), draw(st.floats(0, 5))
    return [
        Option(
            OperatingPoint(32 + 16 * i),
            accuracy[i],
            decode_ms=decode,
            queue_ms=0.0,
            cold_ms=draw(st.sampled_from([0.0, 100.0])) if cold else 0.0,
            forward_ms=forward[i],
            overhead_ms=overhead,
        )
        for i in range(n)
    ]


@st.composite
def situations(draw):
    return Situation(
        allowed_ms=draw(st.floats(0.1, 1000)),
        spent_ms=draw(st.floats(0, 100)),
        patience_ms=1000.0,
        has_budget=draw(st.booleans()),
        on_miss=draw(st.sampled_from(OnMiss)),
        min_accuracy=draw(st.none() | st.floats(0, 1)),
    )


def loaded(options, queue_ms):
    return [replace(option, queue_ms=option.queue_ms + queue_ms) for option in options]


@given(situations(), frontiers(), times)
def test_more_budget_never_means_less_accuracy(situation, options, more):
    poor = choose(situation, options)
    rich = choose(replace(situation, allowed_ms=situation.allowed_ms + more), options)
    assume(poor.verdict is not Verdict.INACCURATE)
    if poor.verdict in (Verdict.SERVE, Verdict.LATE):
        assert rich.option.accuracy >= poor.option.accuracy
    if poor.verdict is Verdict.SERVE:
        assert rich.verdict is Verdict.SERVE


@given(situations(), frontiers(cold=False), times, times)
def test_load_never_makes_it_choose_slower(situation, options, some, more):
    light = choose(situation, loaded(options, some))
    heavy = choose(situation, loaded(options, some + more))
    assume(light.verdict is not Verdict.INACCURATE)
    assert heavy.option.forward_ms <= light.option.forward_ms
    if heavy.verdict is Verdict.SERVE:
        assert light.verdict is Verdict.SERVE


@given(situations(), frontiers())
def test_what_it_serves_fits_and_nothing_better_does(situation, options):
    decision = choose(situation, options)
    if decision.verdict is Verdict.SERVE:
        assert decision.option.total_ms <= situation.left_ms
        assert all(
            o.total_ms > situation.left_ms for o in options if o.accuracy > decision.option.accuracy
        )
        if situation.min_accuracy is not None:
            assert decision.option.accuracy >= situation.min_accuracy


@given(situations(), frontiers(), times)
def test_a_pin_is_a_pin(situation, options, queue):
    pinned = loaded(options[:1], queue)
    decision = choose(replace(situation, pinned=True), pinned)
    assert decision.option == pinned[0]


@given(situations(), frontiers(), times)
def test_every_decision_has_a_reason_and_refusals_are_for_cause(situation, options, queue):
    decision = choose(situation, loaded(options, queue))
    assert decision.reason.endswith(".")
    assert "inf" not in decision.reason
    if decision.verdict is Verdict.IMPOSSIBLE:
        assert situation.on_miss is OnMiss.REFUSE
    if decision.verdict is Verdict.OVERLOADED:
        assert queue > 0


OPTIONS = [
    Option(OperatingPoint(64), 0.5, decode_ms=1, queue_ms=0, cold_ms=0, forward_ms=2),
    Option(OperatingPoint(128), 0.7, decode_ms=1, queue_ms=0, cold_ms=0, forward_ms=6),
    Option(OperatingPoint(224), 0.8, decode_ms=1, queue_ms=0, cold_ms=0, forward_ms=15),
]


def test_what_load_makes_too_slow_is_overload_and_not_impossible():
    slow = [
        replace(option, forward_ms=10 * option.forward_ms, contention_ms=9 * option.forward_ms)
        for option in OPTIONS
    ]
    assert choose(Situation(10, 0, 2000), OPTIONS).verdict is Verdict.SERVE
    for on_miss in OnMiss:
        found = choose(Situation(10, 0, 2000, on_miss=on_miss), slow)
        assert found.verdict is Verdict.OVERLOADED
        assert found.option.total_ms == 21
        assert found.option.warm_ms == 3


@pytest.mark.parametrize(("budget", "expected"), [(3, 64), (7, 128), (15.9, 128), (16, 224)])
def test_the_budget_buys_what_fits(budget, expected):
    decision = choose(Situation(budget, 0, 1000), OPTIONS)
    assert decision.verdict is Verdict.SERVE
    assert decision.option.point.resolution == expected


def test_without_a_budget_the_best():
    decision = choose(Situation(1000, 0, 1000, has_budget=False), OPTIONS)
    assert decision.option.point.resolution == 224
    assert "No budget" in decision.reason


def test_who_named_no_budget_is_refused_only_for_the_time_it_would_wait():
    slow = [
        replace(option, cold_ms=900, forward_ms=option.forward_ms + 200, contention_ms=200)
        for option in OPTIONS
    ]
    patient = Situation(1000, 0, 1000, has_budget=False)
    waited = choose(patient, loaded(slow, 400))
    assert (waited.verdict, waited.option.point.resolution) == (Verdict.LATE, 64)
    assert choose(patient, loaded(slow, 1001)).verdict is Verdict.OVERLOADED
    hurried = replace(patient, on_miss=OnMiss.REFUSE)
    assert choose(hurried, loaded(slow, 400)).verdict is Verdict.OVERLOADED


def test_who_is_alone_is_answered_late_and_not_refused():
    alone = Situation(16, 0, 1000, alone=True)
    late = choose(alone, loaded(OPTIONS, 20))
    assert (late.verdict, late.option.point.resolution) == (Verdict.LATE, 64)
    hurried = replace(alone, on_miss=OnMiss.REFUSE)
    assert choose(hurried, loaded(OPTIONS, 20)).verdict is Verdict.OVERLOADED


def test_too_small_a_budget_answers_late_or_refuses_with_what_would_work():
    late = choose(Situation(1, 0, 1000), OPTIONS)
    assert (late.verdict, late.option.point.resolution) == (Verdict.LATE, 64)
    refused = choose(Situation(1, 0, 1000, on_miss=OnMiss.REFUSE), OPTIONS)
    assert refused.verdict is Verdict.IMPOSSIBLE
    assert refused.option.warm_ms == 3


def test_load_lowers_the_resolution_first_and_refuses_second():
    lowered = choose(Situation(16, 0, 1000), loaded(OPTIONS, 8))
    assert (lowered.verdict, lowered.option.point.resolution) == (Verdict.SERVE, 128)
    assert lowered.given_up == pytest.approx(0.1)
    assert "Load lowered" in lowered.reason
    refused = choose(Situation(16, 0, 1000), loaded(OPTIONS, 20))
    assert refused.verdict is Verdict.OVERLOADED


def test_time_already_gone_counts():
    decision = choose(Situation(16, 9, 1000), OPTIONS)
    assert decision.option.point.resolution == 128


def test_cold_weights_count_and_the_ready_point_goes_first():
    cold = [*OPTIONS[:2], replace(OPTIONS[2], cold_ms=100)]
    decision = choose(Situation(50, 0, 1000), cold)
    assert decision.option.point.resolution == 128
    assert "still to be generated" in decision.reason


def test_only_cold_weights_stand_in_the_way_of_a_refusing_client():
    cold = [replace(OPTIONS[0], cold_ms=100)]
    assert choose(Situation(50, 0, 1000, on_miss=OnMiss.REFUSE), cold).verdict is Verdict.COLD
    assert choose(Situation(50, 0, 1000), cold).verdict is Verdict.LATE


def test_min_accuracy_leaves_only_what_reaches_it():
    decision = choose(Situation(3, 0, 1000, min_accuracy=0.6), OPTIONS)
    assert (decision.verdict, decision.option.point.resolution) == (Verdict.LATE, 128)
    impossible = choose(Situation(3, 0, 1000, min_accuracy=0.9), OPTIONS)
    assert impossible.verdict is Verdict.INACCURATE
    assert "0.800" in impossible.reason


def test_a_point_that_only_its_cold_weights_hold_up_is_named():
    def option(resolution, accuracy, forward, cold=0.0):
        return Option(OperatingPoint(resolution), accuracy, 1.0, 0.0, cold, forward)

    warm = option(64, 0.6, 5.0)
    better, best = option(96, 0.7, 10.0, cold=50.0), option(128, 0.8, 40.0, cold=50.0)
    situation = Situation(20.0, 0.0, 1000.0)
    assert choose(situation, [warm, better, best]).held_up == better.point
    assert choose(situation, [warm, best]).held_up is None  # too slow even if it were warm
    assert choose(situation, [warm, option(32, 0.5, 1.0, cold=50.0)]).held_up is None
    assert choose(replace(situation, allowed_ms=100.0), [warm, better, best]).held_up is None
    late = choose(replace(situation, allowed_ms=3.0), [warm, option(32, 0.5, 1.0, cold=50.0)])
    assert (late.verdict, late.held_up) == (Verdict.LATE, OperatingPoint(32))
