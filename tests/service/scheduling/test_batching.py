from hypothesis import given
from hypothesis import strategies as st

from san_core.frontier import OperatingPoint
from service.scheduling.batching import BatchQueue, Entry

A, B = OperatingPoint(64), OperatingPoint(128)


def linear(point, n):
    """A fixed part, and one per image: batching pays."""
    return (4 + n) if point == A else 2 * (4 + n)


def entry(deadline, point=A, joined=0.0, late=True):
    return Entry(point, deadline, joined, answer_late=lambda: late)


def queue(*entries, max_batch=8, window=0.0):
    made = BatchQueue(max_batch, window)
    for each in entries:
        made.add(each)
    return made


def test_the_earliest_deadline_goes_first_and_takes_its_point_along():
    late, early, friend = entry(100), entry(50, B), entry(70, B)
    waiting = queue(late, early, friend)
    assert waiting.plan(0, 0, linear).run == [early, friend]
    assert waiting.plan(0, 0, linear).run == [late]
    assert len(waiting) == 0


def test_a_batch_never_mixes_points():
    waiting = queue(*(entry(100 + i, p) for i in range(6) for p in (A, B)))
    while len(waiting):
        assert len({e.point for e in waiting.plan(0, 0, linear).run}) == 1


def test_a_batch_does_not_grow_beyond_its_tightest_deadline():
    tight, rest = entry(10.5), [entry(100) for _ in range(5)]
    plan = queue(tight, *rest).plan(0, 0, linear)
    assert plan.run[0] is tight
    assert len(plan.run) == 3


def test_a_batch_does_not_grow_at_the_cost_of_another_point():
    urgent_elsewhere = entry(20.5, B)
    plan = queue(*(entry(16 + i / 10) for i in range(5)), urgent_elsewhere).plan(0, 0, linear)
    assert [e.point for e in plan.run] == [A, A, A]


def test_who_left_costs_nothing():
    gone, here = entry(10), entry(20)
    gone.abandoned = True
    plan = queue(gone, here).plan(0, 0, linear)
    assert plan.run == [here]


def test_who_would_be_late_and_does_not_want_that_is_refused_unrun():
    hopeless, fine = entry(4, late=False), entry(50)
    plan = queue(hopeless, fine).plan(0, 0, linear)
    assert plan.expired == [hopeless]
    assert plan.run == [fine]


def test_two_that_take_longer_together_run_one_after_the_other():
    def pairs_are_slow(_, size):
        return {1: 5.0, 2: 11.5}.get(size, 4.0 * size)

    pair, four = [entry(100), entry(100)], [entry(100) for _ in range(4)]
    assert queue(*pair).plan(0, 0, pairs_are_slow).run == pair[:1]
    assert queue(*four).plan(0, 0, pairs_are_slow).run == four


def test_two_that_take_hardly_longer_together_spare_the_engine_a_handover():
    pair = [entry(100), entry(100)]
    assert queue(*pair).plan(0, 0, lambda _, size: {1: 5.0, 2: 10.5}[size]).run == pair


def test_whether_a_late_answer_is_wanted_is_asked_when_it_comes_to_that():
    crowded = False
    changing = Entry(A, 1, 0.0, answer_late=lambda: not crowded)
    waiting = queue(changing, entry(50, B), entry(50, B), max_batch=1)
    assert waiting.plan(0, 0, linear).expired == []
    crowded = True
    assert waiting.plan(0, 0, linear).expired == [changing]


def test_who_is_late_anyway_waits_behind_who_is_not():
    late, fine = entry(1), entry(50)
    waiting = queue(late, fine, max_batch=1)
    assert waiting.plan(0, 0, linear).run == [fine]
    assert waiting.plan(0, 0, linear).run == [late]


def test_it_waits_for_company_no_longer_than_company_saves():
    waiting = queue(entry(1000), window=50.0)
    plan = waiting.plan(0, 0, linear, lambda _: 1)
    assert plan.run == []
    assert plan.wake_ms == 4  # one run of 2 saves the fixed 4 ms
    assert waiting.plan(4, 0, linear, lambda _: 1).run


def test_it_closes_when_waiting_would_break_the_tightest_deadline():
    plan = queue(entry(7), window=50.0).plan(0, 0, linear, lambda _: 1)
    assert plan.wake_ms == 1  # 7 minus a run of two
    assert queue(entry(6), window=50.0).plan(0, 0, linear, lambda _: 1).run


def test_it_waits_for_nobody_if_nobody_is_coming_or_another_point_waits():
    assert queue(entry(1000), window=50.0).plan(0, 0, linear).run
    assert queue(entry(1000), entry(2000, B), window=50.0).plan(0, 0, linear, lambda _: 1).run


@given(
    st.lists(
        st.tuples(st.floats(0, 200), st.sampled_from([A, B]), st.booleans(), st.booleans()),
        max_size=30,
    ),
    st.integers(1, 8),
)
def test_everyone_leaves_exactly_once(requests, max_batch):
    waiting = BatchQueue(max_batch, 0.0)
    entries = []
    for deadline, point, late, gone in requests:
        entries.append(entry(deadline, point, late=late))
        entries[-1].abandoned = gone
        waiting.add(entries[-1])
    now, ran, expired = 0.0, [], []
    while len(waiting):
        plan = waiting.plan(now, now, linear)
        assert len(plan.run) <= max_batch
        if plan.run:
            now += linear(plan.run[0].point, len(plan.run))
        ran += plan.run
        expired += plan.expired
    assert len(ran) + len(expired) == sum(not e.abandoned for e in entries)
    assert len(set(map(id, ran)) | set(map(id, expired))) == len(ran) + len(expired)
    assert all(not e.answer_late() for e in expired)


@given(st.lists(st.floats(6, 500), min_size=1, max_size=40))
def test_growing_a_batch_never_makes_its_head_late(deadlines):
    waiting = queue(*(entry(d) for d in deadlines))
    plan = waiting.plan(0, 0, linear)
    assert linear(A, len(plan.run)) <= min(deadlines)
