"""What the scheduler learns from what became of requests."""

import pytest

from service.scheduling import costing
from service.scheduling.deciding import Verdict
from service.scheduling.pricing import make_table
from service.scheduling.schedule import Schedule
from service.scheduling.scheduler import Scheduler
from tests.service.scheduling.points import LISTINGS, model, request


def made():
    return Scheduler(model(), Schedule(), LISTINGS)


def enter(scheduler, budget_ms, now_ms, **more):
    asked = request(budget_ms, now_ms, **more)
    assert scheduler.admit(asked, now_ms) is None
    decision = scheduler.decide(asked, now_ms)
    return asked, decision


def run(scheduler, now_ms, took_ms):
    plan = scheduler.next(now_ms, lambda _: False)
    scheduler.started(plan, now_ms)
    scheduler.finished(plan, now_ms + took_ms)
    scheduler.learn(plan, (now_ms, now_ms + took_ms))
    return plan


def test_a_promise_given_up_in_the_queue_is_broken():
    scheduler = made()
    before = scheduler.whole.busy.bound_ms(10.0)
    enter(scheduler, 50.0, 0.0)
    waiting, decision = enter(scheduler, 50.0, 1.0)
    assert decision.verdict is Verdict.SERVE
    scheduler.wait(waiting, 2.0)
    plan = scheduler.next(50.9, lambda _: False)  # in time by the clock, but not to be answered
    assert plan.expired == [waiting]
    scheduler.answered(waiting, 50.9)
    assert (scheduler.calibration.promised, scheduler.calibration.kept) == (1, 0)
    assert scheduler.whole.busy.bound_ms(10.0) > before


def test_waiting_under_load_does_not_count_as_what_a_lone_request_takes():
    scheduler = made()
    first, _ = enter(scheduler, 50.0, 0.0)
    second, _ = enter(scheduler, 50.0, 0.1)
    for asked in (first, second):
        scheduler.wait(asked, 1.0)
    while len(scheduler):
        run(scheduler, 1.0, 5.0)
    alone = scheduler.model.overhead_ms()
    for asked in (first, second):
        asked.timing.forward, asked.timing.total = 5.0, 40.0
        scheduler.answered(asked, asked.started_ms + 40.0)
    assert scheduler.model.overhead_ms() == alone
    assert scheduler.model.overhead_ms(alone=False) > alone
    assert scheduler.whole.alone.at(0.99) < 2  # the first was alone when it came, and then joined


def test_a_request_without_a_promise_keeps_its_place_while_it_has_a_chance():
    likely, decision = enter(made(), 1.6, 0.0)
    assert decision.verdict is Verdict.LATE
    assert likely.due_ms == likely.deadline_ms
    hopeless, decision = enter(made(), 0.5, 0.0)
    assert decision.verdict is Verdict.LATE
    assert hopeless.due_ms > hopeless.deadline_ms


def test_a_lone_client_never_waits_for_costs_to_be_made(monkeypatch):
    """They are made anew after its answer, from what that answer taught."""
    made_at: list[float] = []
    scheduler, now = made(), 0.0
    monkeypatch.setattr(costing, "make_table", lambda *x: made_at.append(now) or make_table(*x))
    for start in (0.0, 1000.0, 2000.0):
        now = start
        asked, _ = enter(scheduler, 50.0, now)
        scheduler.wait(asked, now)
        run(scheduler, now, 5.0)
        now = start + 6.0
        scheduler.answered(asked, now)
        scheduler.leave(asked, now)
    assert made_at == [0.0, 6.0, 1006.0, 2006.0]


def decided(scheduler, now_ms, decode_ms, **more):
    """What one request that is soon gone again is given, with a decoding time for all points."""
    asked = request(50.0, now_ms, **more)
    assert scheduler.admit(asked, now_ms) is None
    decision = scheduler.decide(asked, now_ms, decode_ms=lambda _: decode_ms)
    scheduler.leave(asked, now_ms)
    scheduler.costing.learnt()
    return decision


def test_images_that_are_decoded_apart_make_no_others_expensive():
    """A client that sends large ones must not take accuracy from those that send photographs."""
    scheduler, now = made(), 0.0
    decided(scheduler, now, 1.0)
    before = scheduler.table(now).best.unit_ms
    for _ in range(60):
        now += 100.0
        decided(scheduler, now - 40.0, 30.0, client="large", decoded_apart=True)
        decided(scheduler, now, 1.0, client="polite")
    assert scheduler.table(now).best.unit_ms == pytest.approx(before, rel=0.05)


def test_images_that_are_decoded_apart_count_where_no_others_come():
    scheduler = made()
    for now in range(0, 6000, 60):
        decided(scheduler, float(now), 30.0, decoded_apart=True)
    assert scheduler.table(6000.0).best.unit_ms > 15.0  # half of it: there are two cores
    decided(scheduler, 6100.0, 1.0)
    decided(scheduler, 6200.0, 1.0)
    assert scheduler.table(6300.0).best.unit_ms < 10.0  # forgotten with the first photograph


@pytest.mark.parametrize("direct", [True, False])
def test_a_run_is_expected_to_take_what_is_left_of_it(direct):
    """What a helper took to decode is over by then: others must not be refused because of it."""
    scheduler = made()
    asked = request(2000.0, 0.0, decoded_apart=not direct)
    assert scheduler.admit(asked, 0.0) is None
    scheduler.decide(asked, 0.0, decode_ms=lambda _: 150.0)
    asked.direct = direct
    now = 0.0 if direct else 150.0
    scheduler.wait(asked, now)
    scheduler.started(scheduler.next(now, lambda _: False), now)
    left = scheduler.schedule.running_ms(now)
    assert left > 150.0 if direct else left < 20.0


@pytest.mark.parametrize("apart", [True, False])
def test_cycles_are_not_those_of_images_that_are_decoded_apart(apart):
    """While helpers decode, the engine rests: the time between two runs says nothing about it."""
    scheduler = made()
    before = scheduler.table(0.0).best.unit_ms
    for i in range(3):
        asked = request(2000.0, 0.0, client=str(i), decoded_apart=apart)
        scheduler.admit(asked, 0.0)
        scheduler.decide(asked, 0.0)
    for now in range(100, 3000, 100):
        mine, _ = enter(scheduler, 90.0, float(now), client="polite")
        scheduler.wait(mine, now + 1.0)
        run(scheduler, now + 1.0, 5.0)
        scheduler.leave(mine, now + 7.0)
    after = scheduler.table(3000.0).best.unit_ms
    assert after < 1.1 * before if apart else after > 1.5 * before
