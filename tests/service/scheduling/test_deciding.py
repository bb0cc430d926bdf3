import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.latency.quantiles import Spreads
from service.request.request import Idle
from service.request.terms import OnMiss
from service.scheduling import deciding
from service.scheduling.deciding import Verdict, decide, options, share_ms
from service.scheduling.pricing import Host, make_table
from service.scheduling.schedule import Load
from tests.service.scheduling.points import LISTINGS, listing, model, request, table

SPREADS = Spreads(0.99)
BUSY = Load(alone=False, running_ms=3.0, engine_ms=10.0, least_ms=6.0, waiting=3, spare_ms=40.0)


IDLE = Load()


def asked(budget_ms=50.0, load=IDLE, decode_ms=lambda _: 1.0, cold=lambda _: 0.0, **more):
    return decide(request(budget_ms, **more), table(), load, SPREADS, 0.0, decode_ms, cold)


def _options(budget_ms):
    return options(request(budget_ms), table(), Load(), SPREADS, 0.0, lambda _: 1.0, lambda _: 0.0)


def resolution(decision):
    return decision.option.cost.listing.point.resolution


def test_a_lone_request_with_time_gets_the_most_accurate_point():
    found = asked(50.0)
    assert (found.verdict, resolution(found)) == (Verdict.SERVE, 224)
    assert "most accurate" in found.reason


@given(st.floats(1, 200), st.sampled_from([0.0, 4.0]), st.floats(0, 0.05))
def test_the_short_way_for_lone_requests_decides_as_the_long_one(budget_ms, running, rate):
    load = Load(running_ms=running, rate=rate)
    short = asked(budget_ms, load)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deciding, "_certain", lambda *_: None)
        long = asked(budget_ms, load)
    assert (short.verdict, short.reason, short.price) == (long.verdict, long.reason, long.price)
    assert short.option == long.option


@pytest.mark.parametrize(("budget_ms", "expected"), [(4.0, 64), (5.2, 128), (6.8, 160)])
def test_a_tight_budget_gets_the_best_point_that_keeps_the_promise(budget_ms, expected):
    found = asked(budget_ms)
    assert (found.verdict, resolution(found)) == (Verdict.SERVE, expected)
    assert found.option.in_time >= 0.99


@given(st.floats(0.1, 200), st.integers(0, 40), st.floats(0, 1), st.floats(0, 60))
def test_what_is_promised_is_likely_in_time(budget_ms, waiting, rate, ahead):
    load = Load(False, 0.0, ahead, ahead / 2, 0.0, waiting, budget_ms, rate)
    found = asked(budget_ms, load)
    if found.verdict is Verdict.SERVE:
        assert found.option.in_time >= 0.99


def test_where_nothing_keeps_the_promise_the_best_expected_accuracy_is_tried():
    found = asked(2.6)
    assert found.verdict is Verdict.LATE
    assert "meets 2.6 ms reliably" in found.reason
    expected = [o.accuracy * o.in_time for o in _options(2.6)]
    assert found.option.accuracy * found.option.in_time == max(expected)


def test_such_a_request_is_refused_if_it_asks_for_that():
    found = asked(2.0, on_miss=OnMiss.REFUSE)
    assert found.verdict is Verdict.IMPOSSIBLE
    assert "on this host" in found.reason


def test_time_lost_in_a_queue_in_front_is_load_and_not_the_budget_s_fault():
    waited = request(20.0, on_miss=OnMiss.REFUSE)
    waited.idle = Idle(feasible=True, accuracy=0.7)
    arguments = table(), IDLE, SPREADS, 45.0, lambda _: 1.0, lambda _: 0.0
    assert decide(waited, *arguments).verdict is Verdict.OVERLOADED
    waited.upload_ms = 45.0  # the client's own time
    assert decide(waited, *arguments).verdict is Verdict.IMPOSSIBLE


def test_many_expected_arrivals_lower_the_point_but_not_below_the_floor():
    calm = asked(50.0, BUSY)
    busy = asked(50.0, Load(False, 3.0, 10.0, 6.0, 0.0, 8, 40.0, rate=0.3))
    flood = asked(50.0, Load(False, 3.0, 10.0, 6.0, 0.0, 8, 40.0, rate=5.0))
    assert resolution(calm) > resolution(busy)
    assert flood.option.accuracy >= table().hull[0][1]
    assert "Load lowered the choice" in busy.reason
    assert busy.given_up > 0


def test_a_request_that_load_makes_late_is_refused_even_at_the_floor():
    found = asked(30.0, Load(False, 3.0, 60.0, 50.0, 0.0, 20, 20.0, 0.1))
    assert found.verdict is Verdict.OVERLOADED
    assert "The load leaves no point" in found.reason


def test_those_before_it_can_be_lowered_to_let_it_in():
    found = asked(50.0, Load(False, 3.0, 60.0, 12.0, 0.0, 20, 20.0, 0.1))
    assert found.verdict is Verdict.SERVE
    assert found.option.accuracy == table().hull[0][1]


def test_waiting_for_a_decoder_does_not_lower_the_resolution():
    """What a smaller resolution does not shorten must not lower it."""
    found = asked(60.0, Load(False, 0.0, 0.0, 0.0, decode_ms=20.0, waiting=1, spare_ms=40.0))
    assert resolution(found) == 224


def test_load_never_goes_below_the_floor_but_a_tight_budget_may():
    floor = table().hull[0][1]
    flood = Load(False, 0.5, 0.5, 0.5, 0.0, 2, 3.0, rate=5.0)
    assert asked(50.0, flood).option.accuracy >= floor
    assert asked(4.0).option.accuracy < floor


def test_a_pin_is_served_where_it_can_be():
    pinned = decide(request(50.0, resolution=224), table([listing(224)]), BUSY, SPREADS, 0.0)
    assert (pinned.verdict, resolution(pinned)) == (Verdict.SERVE, 224)


@pytest.mark.parametrize(("pin", "told"), [({"resolution": 224}, "pinned 224"), ({}, "No budget")])
def test_a_reason_names_no_budget_that_the_client_did_not_name(pin, told):
    for alone, verdict in ((True, Verdict.LATE), (False, Verdict.OVERLOADED)):
        far = Load(alone, 2500.0, 2500.0, 2500.0)
        found = decide(request(None, **pin), table([listing(224)]), far, SPREADS, 0.0)
        assert found.verdict is verdict
        if alone:
            assert told in found.reason
            assert "2000" not in found.reason
        else:
            assert "the 2000 ms that requests without a budget may take" in found.reason


def test_accuracy_can_be_demanded():
    found = asked(50.0, min_accuracy=0.72)
    assert resolution(found) == 224
    refused = asked(50.0, min_accuracy=0.99)
    assert refused.verdict is Verdict.INACCURATE
    assert "0.99" in refused.reason


def test_a_cold_point_is_named_while_a_warm_one_serves():
    found = asked(20.0, cold=lambda c: 100.0 if c.accuracy == 0.75 else 0.0)
    assert resolution(found) == 160
    assert found.held_up.resolution == 224


def test_only_cold_weights_in_the_way_is_said_to_who_refuses_to_wait():
    found = asked(20.0, cold=lambda _: 100.0, on_miss=OnMiss.REFUSE)
    assert found.verdict is Verdict.COLD


def test_without_a_budget_nothing_is_refused_for_being_slow():
    found = decide(request(None, patience_ms=1.0), table(), Load(), SPREADS, 0.0, lambda _: 5.0)
    assert found.verdict in (Verdict.SERVE, Verdict.LATE)


def test_several_images_are_one_plan_and_cost_as_many():
    one, four = asked(30.0, images=1), asked(30.0, images=8)
    assert resolution(one) == 224
    assert resolution(four) < 224


@given(st.integers(0, 50), st.floats(0, 2), st.floats(1, 100))
def test_the_share_falls_with_those_that_wait_and_come(waiting, rate, budget_ms):
    few = Load(False, waiting=waiting, spare_ms=budget_ms, rate=rate)
    more = Load(False, waiting=waiting + 1, spare_ms=budget_ms, rate=rate + 0.1)
    made = request(budget_ms)
    assert share_ms(made, few, 0.0) > share_ms(made, more, 0.0) > 0


def test_a_noisy_host_does_not_drive_a_lone_request_to_the_smallest_point():
    """One answer in twenty takes three times as long, whatever the point."""
    noisy = Spreads(0.99)
    for now in range(120):
        noisy.alone.learn(now, 3.0 if now % 20 == 0 else 1.0)
    found = decide(request(10.0), table(), IDLE, noisy, 0.0, lambda _: 1.0)
    assert resolution(found) >= 160
    assert found.option.in_time >= 0.9


def test_what_cannot_be_promised_is_served_while_the_engine_has_time():
    full = Load(False, 3.0, 3.0, 3.0, 0.0, 1, 9.0, rate=0.0)
    found = asked(8.0, full)
    assert found.verdict is Verdict.LATE
    assert 0.9 <= found.option.in_time < 0.99
    assert asked(8.0, full, on_miss=OnMiss.REFUSE).verdict is Verdict.OVERLOADED


def test_but_not_while_others_need_it():
    short = Load(False, 3.0, 3.0, 3.0, 0.0, 1, 9.0, rate=2.0)
    found = asked(8.0, short)
    assert found.verdict is Verdict.OVERLOADED
    assert found.price > 0  # what the engine is worth does not hang on who asks


INT8 = [*LISTINGS, listing(224, "int8", 0.745)]


@pytest.mark.parametrize("more", [{}, {"budget_ms": None}, {"resolution": 224}])
def test_of_points_that_are_equal_within_the_error_the_faster_is_taken(more):
    asking = request(**({"budget_ms": 50.0} | more))
    found = decide(asking, table(INT8), IDLE, SPREADS, 0.0)
    assert found.option.cost.listing.point.precision == "int8"
    assert found.given_up == 0.0


def test_an_accuracy_that_only_float_reaches_gets_float():
    found = decide(request(50.0, min_accuracy=0.748), table(INT8), IDLE, SPREADS, 0.0)
    assert found.option.cost.listing.point.precision == "float"


def test_a_demanded_accuracy_is_served_after_a_burst_although_its_share_does_not_pay_for_it():
    found = asked(20.0, Load(rate=2.0), min_accuracy=0.74)
    assert (found.verdict, resolution(found)) == (Verdict.SERVE, 224)


def test_a_request_with_nobody_to_share_with_pays_no_price():
    """However much time of the machine it takes: no other request would have it."""
    points = [listing(t) for t in (64, 128, 160, 224)]
    costly = make_table(points, model(), Host(2), 8, lambda t: 400.0 if t == 224 else 100.0)
    ample = decide(request(200.0), costly, Load(), SPREADS, 0.0, lambda _: 1.0)
    assert (resolution(ample), ample.price) == (224, 0.0)
    expected = Load(rate=0.05)
    assert share_ms(request(1000.0), expected, 0.0) < float("inf")
