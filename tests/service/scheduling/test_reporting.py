"""What a scheduler tells a router."""

from service.replay.fleet import make_fleet
from service.replay.traces import Arrival
from service.scheduling.reporting import reported


def replica_with(arrivals, until_ms):
    (replica,) = make_fleet(1, "random").replicas
    for at in arrivals:
        replica.arrive(Arrival(at), at)
    replica.machine.advance(until_ms)
    return replica


def report(replica):
    return reported(replica.policy.scheduler, replica.machine.now, lambda _: 1.0, 7.0)


def test_an_idle_replica_has_nothing_to_wait_for():
    told = report(replica_with([], 0.0))
    assert told.wait_ms == told.utilisation == told.price == 0
    assert told.arrivals_per_s == 7.0
    assert told.work_ms > 0


def test_a_busy_one_says_how_long_and_needs_longer_budgets():
    idle, busy = report(replica_with([], 0.0)), report(replica_with([1.0] * 6, 5.0))
    assert busy.wait_ms > 0
    assert 0 < busy.utilisation <= 1
    assert busy.points[0][1] > idle.points[0][1]


def test_a_luxury_is_not_offered():
    replica = replica_with([], 0.0)
    table = replica.policy.scheduler.table(0.0)
    assert [cost.accuracy for cost in table.points if cost.luxury] == [0.745]
    assert report(replica).points[-1][0] == 0.743
