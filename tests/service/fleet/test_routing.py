"""Choosing a replica."""

import random
from dataclasses import replace

import pytest

from service.fleet.headroom import Headroom
from service.fleet.routing import ROUTERS, View, by_headroom

IDLE = Headroom(((0.25, 4.0), (0.75, 12.0)), work_ms=2.0)
BUSY = Headroom(((0.25, 30.0), (0.75, 60.0)), work_ms=2.0, wait_ms=20.0)
WORKING = Headroom(((0.25, 10.0), (0.75, 30.0)), work_ms=2.0, wait_ms=8.0)
SLOW = Headroom(((0.25, 10.0), (0.75, 25.0)), work_ms=5.0)


def view(*reports, now=0.0, inside=0):
    made = View()
    made.inside = inside
    for headroom in reports or (IDLE,):
        made.report(headroom, now)
    return made


@pytest.mark.parametrize("name", ROUTERS)
def test_every_router_uses_every_replica(name):
    choose = ROUTERS[name](random.Random(1))
    views = [view() for _ in range(4)]
    seen = set()
    for _ in range(200):
        i = choose(views, 50.0, 0.0)
        views[i].sent(0.0)
        seen.add(i)
        if sum(v.inside for v in views) > 8:
            for v in views:
                v.left(0.0)
    assert seen == {0, 1, 2, 3}


def test_the_replica_with_more_accuracy_in_time_is_taken():
    choose = by_headroom(random.Random(1))
    assert choose([view(IDLE, BUSY), view(IDLE)], 13.0, 0.0) == 1


def test_what_was_sent_since_the_report_counts():
    choose = by_headroom(random.Random(1))
    views = [view(), view()]
    views[0].sent(0.0)
    assert choose(views, 13.0, 0.0) == 1
    views[0].left(0.0)
    views[1].sent(0.0)
    assert choose(views, 13.0, 1.0) == 0


def test_a_request_with_time_to_spare_leaves_the_idle_replica_to_others():
    choose = by_headroom(random.Random(1))
    views = [view(), view(inside=1), view(SLOW)]
    assert choose(views, 100.0, 0.0) == 0, "nobody came with less"
    assert choose(views, 5.0, 0.0) == 0
    assert choose(views, 100.0, 0.0) == 2


def test_a_budget_that_nobody_keeps_is_nothing_to_make_room_for():
    choose = by_headroom(random.Random(1))
    views = [view(), view(inside=1), view(SLOW)]
    choose(views, 0.1, 0.0)
    assert choose(views, 100.0, 0.0) == 0


def test_it_is_not_sent_where_the_work_takes_most_of_its_budget():
    choose = by_headroom(random.Random(1))
    views = [view(), view(IDLE, WORKING, inside=4)]
    assert choose(views, 5.0, 0.0) == 0
    assert choose(views, 31.0, 0.0) == 0
    assert choose(views, 40.0, 0.0) == 1


@pytest.mark.parametrize("budget_ms", [65.0, 100.0, 2000.0])
def test_nobody_waits_longer_for_others_sake_however_long_the_budget(budget_ms):
    choose = by_headroom(random.Random(1))
    views = [view(), view(IDLE, BUSY, inside=10), view(IDLE, WORKING, inside=4)]
    assert choose(views, 5.0, 0.0) == 0
    assert choose(views, budget_ms, 0.0) == 2


def test_a_request_without_a_budget_does_not_wait_for_seconds_either():
    choose = by_headroom(random.Random(1))
    views = [view(), view(IDLE, BUSY, inside=40)]
    assert choose(views, 5.0, 0.0) == 0
    assert choose(views, 2000.0, 0.0) == 0


def test_a_request_that_none_keeps_goes_where_it_is_answered_soonest():
    choose = by_headroom(random.Random(1))
    assert choose([view(SLOW), view(inside=1), view(inside=3)], 3.0, 0.0) == 1


def test_a_replica_is_idle_once_the_work_it_reported_is_done():
    old = view(IDLE, BUSY)
    assert old.ahead_ms(5.0) == 15.0
    assert old.expected(13.0, old.ahead_ms(5.0)) == 0.0
    assert old.ahead_ms(30.0) == 0.0
    assert old.expected(13.0, old.ahead_ms(30.0)) == 0.75


def test_requests_of_this_router_are_inside_until_they_come_back():
    made = view(inside=3)
    made.report(BUSY, 0.0)
    assert made.ahead_ms(0.0) == 20.0  # 6 of them its own, 14 of others
    assert made.ahead_ms(100.0) == 6.0
    made.left(100.0)
    assert made.ahead_ms(100.0) == 4.0


def test_an_answer_that_is_overdue_is_taken_to_need_as_long_again():
    made = view()
    made.sent(0.0)
    assert made.ahead_ms(14.0) == 2.0, "12 ms for the best point, 2 ms for one request"
    assert made.ahead_ms(114.0) == 102.0
    made.sent(100.0)
    made.left(115.0)
    assert made.ahead_ms(120.0) == 2.0, "something came back"


def test_a_replica_that_stopped_answering_gets_no_more():
    choose = by_headroom(random.Random(1))
    stopped, works = view(), view()
    stopped.sent(0.0)
    for _ in range(3):
        works.sent(450.0)
    assert choose([stopped, works], 2000.0, 500.0) == 1


def test_what_an_idle_replica_cannot_do_is_tried_again_by_requests_with_time_to_spare():
    choose = by_headroom(random.Random(1))
    views = [view(), view(IDLE, WORKING, inside=5), view(SLOW)]
    choose(views, 5.0, 0.0)
    assert choose(views, 100.0, 10.0) == 1, "fuller, and what the slow one told is news"
    assert choose(views, 100.0, 50.0) == 2
    assert choose(views, 5.0, 50.0) == 0


def test_a_report_that_was_heard_before_is_not_news():
    made = view(IDLE, BUSY, now=0.0)
    made.report(BUSY, 15.0)
    assert made.ahead_ms(15.0) == 5.0


def test_until_an_idle_replica_has_told_the_busy_one_is_all_there_is():
    made = view(BUSY)
    assert made.expected(61.0, 20.0) == 0.75
    assert made.expected(41.0, 20.0) < 0.75
    assert made.needs_ms(30.0) == 40.0


def test_a_replica_that_never_reported_is_tried():
    choose = by_headroom(random.Random(1))
    assert choose([view(), View()], 50.0, 0.0) == 1
    tried = View()
    tried.sent(0.0)
    assert choose([view(), tried], 50.0, 0.0) == 0


def crowded(size=16):
    """A router, and replicas with work inside that others sent."""
    views = [View() for _ in range(size)]
    for number in range(100):  # news: what is reported again is not
        for v in views:
            v.report(replace(WORKING, price=float(number)), 0.0)
    return by_headroom(random.Random(1)), views


def test_a_router_that_is_not_alone_makes_no_room_but_goes_round():
    alone, busiest = by_headroom(random.Random(1)), [view() for _ in range(16)]
    busiest[0] = view(IDLE, WORKING, inside=5)
    alone(busiest, 5.0, 0.0)
    assert {alone(busiest, 100.0, 0.0) for _ in range(20)} == {0}
    crowd, views = crowded()
    views[0].inside = 5
    crowd(views, 5.0, 0.0)
    assert [crowd(views, 100.0, 0.0) for _ in range(32)] == [*range(1, 16), *range(16), 0]


def test_a_router_that_is_not_alone_passes_over_a_replica_that_serves_less():
    crowd, views = crowded()
    views[3].report(BUSY, 0.0)
    chosen = [crowd(views, 40.0, 0.0) for _ in range(160)]
    assert 3 not in chosen
    assert set(chosen) == set(range(16)) - {3}


def test_reports_that_answers_contradict_are_not_believed_for_longer_and_longer():
    choose = by_headroom(random.Random(1))
    liar, works = view(), view()
    now = 0.0
    for waits_ms in (500.0, 1000.0, 2000.0):
        liar.sent(now)
        now += 120.0  # ten times what it says
        liar.left(now)
        works.inside = 5  # much to do, but still the better one
        assert choose([liar, works], 50.0, now + waits_ms - 1.0) == 1
        assert choose([liar, works], 50.0, now + waits_ms) == 0
        now += waits_ms
    liar.sent(now)
    liar.left(now + 10.0)
    liar.sent(now + 20.0)
    liar.left(now + 140.0)
    assert choose([liar, works], 50.0, now + 141.0 + 500.0) == 0, "it had kept what it says since"
    liar.doubted_until_ms = works.doubted_until_ms = now + 1e6
    assert choose([liar, works], 50.0, now + 1000.0) in (0, 1), "none is better than the others"
