from hypothesis import given
from hypothesis import strategies as st

from san_core.frontier import OperatingPoint
from service.latency.quantiles import Spread
from service.request.request import State
from service.scheduling.dispatching import choose
from service.scheduling.schedule import Load, Schedule
from service.scheduling.scheduler import Scheduler
from tests.service.scheduling.points import LISTINGS, model, request, table


def waiting(budget_ms, side=224, started_ms=0.0, **more):
    made = request(budget_ms, started_ms, **more)
    made.point, made.side, made.state = OperatingPoint(side), side, State.WAITING
    made.work_ms = 1e9
    return made


IDLE = Load()


def plan(*requests, load=IDLE, max_batch=8):
    ordered = sorted(requests, key=lambda r: r.due_ms)
    return choose(
        ordered, table(), load, Spread(0.99), 0.0, max_batch,
        lambda r, c: c.listing.point.resolution <= r.side,
    )  # fmt: skip


def test_those_that_wait_run_together_at_one_point():
    found = plan(*(waiting(100.0) for _ in range(4)))
    assert len(found.run) > 1
    assert found.cost.listing.point.resolution == 224


def test_a_crowd_runs_at_a_smaller_point_in_a_larger_batch():
    crowd = [waiting(50.0) for _ in range(16)]
    load = Load(False, waiting=15, spare_ms=50.0, rate=0.4)
    found = plan(*crowd, load=load)
    assert len(found.run) >= 4
    assert found.cost.listing.point.resolution < 224
    assert found.price > 0


def test_a_batch_does_not_grow_beyond_its_tightest_deadline():
    tight, rest = waiting(14.0), [waiting(200.0) for _ in range(6)]
    found = plan(tight, *rest)
    assert found.run[0] is tight
    assert found.rest_ms * Spread(0.99).bound <= 14.0


def test_a_short_budget_does_not_drag_a_long_one_down():
    """The short one runs at its point; the long ones wait for theirs."""
    short, long = waiting(4.0, side=64), [waiting(200.0) for _ in range(3)]
    short.work_ms = 0.1
    found = plan(short, *long)
    assert found.run == [short]
    assert found.cost.listing.point.resolution == 64


def test_nobody_runs_above_what_its_pixels_are_good_for():
    found = plan(waiting(200.0, side=128), waiting(200.0, side=128))
    assert found.cost.listing.point.resolution == 128


def test_a_request_of_more_images_than_a_batch_runs_alone():
    many = waiting(2000.0, images=20)
    found = plan(many, waiting(3000.0))
    assert found.run == [many]


budgets = st.lists(
    st.tuples(st.floats(1, 300), st.sampled_from([64, 128, 160, 224]), st.booleans()),
    min_size=1,
    max_size=24,
)


@given(budgets, st.integers(1, 8))
def test_every_request_leaves_exactly_once(requests, max_batch):
    schedule = Schedule()
    scheduler = Scheduler(model(), schedule, LISTINGS, max_batch=max_batch)
    entered = []
    for budget_ms, side, late in requests:
        made = waiting(budget_ms, side)
        schedule.enter(made, 0.0)
        scheduler.wait(made, 0.0)
        entered.append((made, late))
    wants = {id(made): late for made, late in entered}
    now, ran, expired = 0.0, [], []
    while len(scheduler):
        found = scheduler.next(now, lambda r: wants[id(r)])
        expired += found.expired
        assert len({r.side for r in found.run}) == 0 or sum(r.images for r in found.run) <= max(
            max_batch, found.run[0].images
        )
        if found.run:
            scheduler.started(found, now)
            now += found.run_ms
            scheduler.finished(found, now)
            scheduler.learn(found, (now - found.run_ms, now))
            assert len({r.point for r in found.run}) == 1
            ran += found.run
    assert len(ran) + len(expired) == len(entered)
    assert len(set(map(id, ran + expired))) == len(entered)
    assert not any(wants[id(r)] for r in expired)
    assert len(schedule) == 0
