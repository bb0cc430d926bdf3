"""Many replicas on one virtual clock."""

import pytest

from service.fleet.routing import ROUTERS
from service.replay.fleet import bursty, make_fleet
from service.replay.traces import Arrival, faster, scenario


@pytest.mark.parametrize("router", ROUTERS)
def test_every_request_has_an_end(router):
    trace = bursty(3, 1.0, 1.3)
    result = make_fleet(3, router).run(trace)
    assert result.offered == len(trace) > 100
    assert result.in_time + result.late + result.refused == result.offered
    assert 0 < result.per_offered < 0.75


def test_a_replica_is_idle_where_the_router_sends_nothing():
    fleet = make_fleet(2, "round-robin")
    fleet.routers[0].choose = lambda *_: 1
    result = fleet.run([Arrival(10.0 * i, 100.0) for i in range(20)])
    assert fleet.replicas[0].result.offered == 0
    assert result.in_time == fleet.replicas[1].result.in_time == 20


def test_views_follow_what_is_sent_and_what_comes_back():
    fleet = make_fleet(2, "headroom")
    fleet.run([Arrival(5.0 * i, 100.0) for i in range(40)])
    for view in fleet.routers[0].views:
        assert view.inside == 0
        assert view.headroom is not None


def test_a_slow_replica_gets_less():
    trace = [Arrival(8.0 * i, 60.0) for i in range(150)]
    fleet = make_fleet(2, "headroom", paces=(1.0, 6.0))
    fleet.run(trace)
    fast, slow = (replica.result.offered for replica in fleet.replicas)
    assert fast > 2 * slow


@pytest.mark.parametrize("paces", [(1.0,), (1.0, 1.0, 1.0, 2.5)])
def test_headroom_gets_more_accuracy_in_time_than_any_other_router(paces):
    trace = bursty(8, 0.7, 1.5)
    found = {name: make_fleet(8, name, paces=paces).run(trace).per_offered for name in ROUTERS}
    ours = found.pop("headroom")
    # Alike replicas leave little to be won: nobody does better than one router that goes round.
    assert ours > max(found.values()) * (1.0 if len(paces) == 1 else 1.05)


def test_headroom_gains_a_tenth_in_bursts_with_mixed_budgets_where_hosts_differ():
    trace = faster(scenario("mixed4-1", 1.5 * 16, 11), 16)
    found = {
        name: make_fleet(16, name, paces=(1.0, 1.0, 1.0, 2.5), seed=11).run(trace).per_offered
        for name in ("headroom", "least-requests", "round-robin")
    }
    assert found.pop("headroom") >= 1.1 * max(found.values())


def test_a_router_hears_only_of_what_it_sent():
    fleet = make_fleet(1, "headroom", routers=2)
    fleet.run([Arrival(5.0 * i, 100.0) for i in range(40)])
    heard, other = (router.views[0] for router in fleet.routers)
    assert heard.headroom is not None
    assert other.headroom is not None
    assert heard.idle is not other.idle


@pytest.mark.parametrize(("paces", "gain"), [((1.0,), 0.98), ((1.0, 1.0, 1.0, 2.5), 1.0)])
def test_many_routers_do_not_all_choose_the_same_replica(paces, gain):
    """Each knows little of the others' requests: then least requests is hard to beat."""
    trace = bursty(8, 0.7, 1.5)
    ours, least = (
        make_fleet(8, name, paces=paces, routers=8).run(trace).per_offered
        for name in ("headroom", "least-requests")
    )
    assert ours > gain * least
