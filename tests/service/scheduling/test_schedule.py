import pytest

from service.request.request import State
from service.scheduling.schedule import Schedule
from tests.service.scheduling.points import request


def entered(schedule, budget_ms, work_ms=2.0, decode_ms=1.0, now=0.0, **more):
    made = request(budget_ms, now, **more)
    made.work_ms, made.least_ms, made.decode_ms = work_ms, work_ms / 2, decode_ms
    schedule.arrived(made, now, 5.0)
    schedule.enter(made, now)
    return made


def test_what_is_due_earlier_goes_before():
    schedule = Schedule(2)
    entered(schedule, 10.0)
    entered(schedule, 100.0)
    load = schedule.load(request(50.0), 0.0)
    assert (load.engine_ms, load.least_ms, load.decode_ms, load.waiting) == (2.0, 1.0, 0.5, 2)


def test_what_runs_goes_before_whatever_its_deadline():
    schedule = Schedule()
    late = entered(schedule, 500.0)
    schedule.started([late], 8.0)
    assert late.state is State.RUNNING
    assert schedule.load(request(10.0), 3.0).engine_ms == 5.0
    assert schedule.load(request(10.0), 20.0).engine_ms == 0.0


def test_nothing_is_left_behind_and_leaving_twice_is_harmless():
    schedule = Schedule()
    made = entered(schedule, 10.0)
    schedule.started([made], 5.0)
    schedule.leave(made, 1.0)
    schedule.leave(made, 1.0)
    assert len(schedule) == 0
    assert schedule.load(request(10.0), 1.0).alone
    assert schedule.drain_ms(1.0) == 0.0


def test_a_client_that_sends_one_after_the_other_expects_nobody():
    schedule = Schedule()
    for n in range(100):
        made = entered(schedule, 50.0, now=10.0 * n)
        schedule.leave(made, 10.0 * n + 8.0)
    assert schedule.rate == 0.0


def test_arrivals_while_there_is_work_are_what_a_run_makes_wait():
    schedule = Schedule()
    blocker = entered(schedule, 1e6)
    for n in range(2000):
        schedule.leave(entered(schedule, 50.0, now=5.0 * n), 5.0 * n + 4.0)
    assert schedule.rate == pytest.approx(0.2, rel=0.15)
    assert len(schedule) == 1
    schedule.leave(blocker, 10_000.0)
    later = entered(schedule, 50.0, now=60_000.0)
    schedule.leave(later, 60_001.0)
    assert schedule.rate < 0.01


def test_a_greedy_client_stands_behind_a_polite_one():
    schedule = Schedule()
    for n in range(500):
        schedule.arrived(request(50.0, 1.0 * n, client="greedy"), 1.0 * n, 5.0)
        if n % 40 == 0:
            schedule.arrived(request(50.0, 1.0 * n, client="polite"), 1.0 * n, 5.0)
    greedy, polite = request(50.0, client="greedy"), request(60.0, client="polite")
    for made in (greedy, polite):
        schedule.arrived(made, 500.0, 5.0)
        made.work_ms = 3.0
        schedule.enter(made, 500.0)
    assert (greedy.behind, polite.behind) == (True, False)
    assert list(schedule) == [polite, greedy]
    assert schedule.load(polite, 500.0).engine_ms == 0.0
    assert schedule.load(greedy, 500.0).engine_ms == 3.0
    assert schedule.load(greedy, 500.0).part < 1.0


def test_what_a_greedy_client_sent_before_it_was_known_as_one_stands_behind_too():
    schedule = Schedule()
    early = entered(schedule, 20.0, now=0.0, client="greedy")
    for n in range(500):
        schedule.arrived(request(50.0, 1.0 * n, client="greedy"), 1.0 * n, 5.0)
        if n % 40 == 0:
            schedule.arrived(request(50.0, 1.0 * n, client="polite"), 1.0 * n, 5.0)
    polite = entered(schedule, 60.0, now=500.0, client="polite")
    assert list(schedule) == [polite, early]


def test_clients_that_all_want_too_much_are_equal():
    schedule = Schedule()
    for n in range(500):
        for client in ("a", "b"):
            schedule.arrived(request(50.0, 1.0 * n, client=client), 1.0 * n, 5.0)
    found = [request(50.0, client=client) for client in ("a", "b")]
    for made in found:
        schedule.arrived(made, 500.0, 5.0)
    assert [made.behind for made in found] == [True, True]


def test_a_higher_priority_goes_first_whatever_its_deadline():
    schedule = Schedule()
    plain = entered(schedule, 10.0)
    first = entered(schedule, 90.0, priority=-1)
    assert list(schedule) == [first, plain]


def test_a_request_knows_that_others_came_while_it_was_inside():
    schedule = Schedule()
    first = entered(schedule, 10.0)
    assert not first.joined
    second = entered(schedule, 10.0, now=1.0)
    assert first.joined
    assert not second.joined


def test_a_pause_is_time_without_anything_inside():
    schedule = Schedule()
    made = entered(schedule, 10.0, now=5.0)
    assert schedule.idle_ms(500.0) == 0.0
    schedule.leave(made, 600.0)
    assert schedule.idle_ms(700.0) == 100.0
