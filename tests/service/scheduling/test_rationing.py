"""A run that nothing interrupts, while a client with a shorter budget is here."""

from dataclasses import replace

import pytest

from service.scheduling import dispatching
from service.scheduling.rationing import Ration
from service.scheduling.tuning import TUNING
from tests.service.scheduling.points import LISTINGS
from tests.service.scheduling.test_scheduler import enter, made


def waits(scheduler, client, now_ms, budget_ms=None, **more):
    """A request that is decoded and waits for the engine."""
    asked, _ = enter(scheduler, budget_ms, now_ms, client=client, **more)
    scheduler.wait(asked, now_ms)
    return asked


def start(scheduler, now_ms):
    plan = scheduler.next(now_ms, lambda _: True)
    if plan.run:
        scheduler.started(plan, now_ms)
        scheduler.finished(plan, now_ms + plan.run_ms)
        scheduler.learn(plan, None)
    return plan


def test_long_runs_take_no_more_time_than_promises_may_be_broken():
    scheduler = made()
    scheduler.costing.frontier = [x for x in LISTINGS if x.point.resolution == 224]
    polite, _ = enter(scheduler, 50.0, 0.0, client="polite")
    scheduler.leave(polite, 1.0)
    greedy = [waits(scheduler, "greedy", 2.0, images=8) for _ in range(2)]
    first = start(scheduler, 2.0)
    assert first.run == greedy[:1]
    held = start(scheduler, 50.0)
    assert held.run == []
    assert held.wake_ms is not None
    # Nobody waits for what is held.
    polite = waits(scheduler, "polite", 60.0, 50.0)
    assert start(scheduler, 60.0).run == [polite]
    assert start(scheduler, 70.0).run == []
    # Once the polite client has been gone for a while nobody can be harmed.
    assert start(scheduler, 60.0 + 2001.0).run == greedy[1:]


def test_batches_are_short_enough_for_others_and_whole_without_them(monkeypatch):
    # Of batches that get about as much done the shortest runs, which would hide the difference.
    monkeypatch.setattr(dispatching, "TUNING", replace(TUNING, thin=0.0))
    for others, most in ((False, 8), (True, 5)):
        scheduler = made()
        if others:
            polite, _ = enter(scheduler, 50.0, 0.0, client="polite")
            scheduler.leave(polite, 1.0)
        for _ in range(8):
            waits(scheduler, "greedy", 2.0)
        assert len(start(scheduler, 2.0).run) == most


def test_what_may_be_given_without_a_pin_is_never_long():
    ration = Ration(0.99)
    ration.came("hasty", 1.0, 0.0)
    assert ration.limit_ms("other", 5.0, 1.0) == pytest.approx(7.5)
    assert ration.limit_ms("hasty", 5.0, 1.0) == float("inf")


def test_few_clients_are_remembered():
    ration = Ration(0.99)
    for n in range(10_000):
        ration.came(str(n), 50.0, 0.0)
    assert len(ration._budgets) <= 256
    ration.came("late", 50.0, 5000.0)
    assert ration.limit_ms("other", 1.0, 5000.0) == 25.0


def test_other_clients_count_for_two_seconds_after_their_last_request():
    ration = Ration(0.99)
    assert not ration.has_others("a", 0.0)
    ration.came("a", 10.0, 0.0)
    assert not ration.has_others("a", 0.0)
    assert ration.has_others("b", 0.0)
    ration.came("b", 10.0, 1000.0)
    ration.came("a", 10.0, 1500.0)
    assert ration.has_others("a", 2900.0)
    assert not ration.has_others("a", 3600.0)
    assert not ration.has_others("b", 3600.0)
