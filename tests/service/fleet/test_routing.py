"""Choosing a replica."""

import random

import pytest

from service.fleet.headroom import Headroom
from service.fleet.routing import ROUTERS, View, by_headroom

IDLE = Headroom(((0.25, 4.0), (0.75, 12.0)), 2.0)
BUSY = Headroom(((0.25, 30.0), (0.75, 60.0)), 2.0)


def view(headroom=IDLE, now=0.0, inside=0):
    made = View()
    made.report(headroom, now)
    made.inside = inside
    return made


@pytest.mark.parametrize("name", ROUTERS)
def test_every_router_uses_every_replica(name):
    choose = ROUTERS[name](random.Random(1))
    views = [view() for _ in range(4)]
    seen = set()
    for _ in range(200):
        i = choose(views, 50.0, 0.0)
        views[i].sent()
        seen.add(i)
        if sum(v.inside for v in views) > 8:
            for v in views:
                v.left()
                v.report(IDLE, 0.0)
    assert seen == {0, 1, 2, 3}


@pytest.mark.parametrize(("budget_ms", "chosen"), [(13.0, 1), (50.0, 1)])
def test_the_replica_with_more_accuracy_in_time_is_taken(budget_ms, chosen):
    choose = by_headroom(random.Random(1))
    assert choose([view(BUSY), view(IDLE)], budget_ms, 0.0) == chosen


def test_what_was_sent_since_the_report_counts():
    choose = by_headroom(random.Random(1))
    views = [view(IDLE), view(IDLE)]
    views[0].sent()
    assert choose(views, 13.0, 0.0) == 1
    views[0].left()
    views[0].report(IDLE, 1.0)
    views[1].sent()
    assert choose(views, 13.0, 1.0) == 0


def test_an_old_report_is_corrected_by_what_is_known_to_be_inside():
    choose = by_headroom(random.Random(1))
    stale = view(IDLE, now=0.0, inside=3)
    stale.then = 3
    assert choose([stale, view(BUSY, now=5000.0)], 40.0, 5000.0) == 0
    stale.inside = stale.then = 50
    assert choose([stale, view(BUSY, now=5000.0)], 40.0, 5000.0) == 1


def test_a_replica_that_never_reported_is_tried():
    choose = by_headroom(random.Random(1))
    assert choose([view(IDLE), View()], 50.0, 0.0) == 1
    tried = View()
    tried.sent()
    assert choose([view(IDLE), tried], 50.0, 0.0) == 0
