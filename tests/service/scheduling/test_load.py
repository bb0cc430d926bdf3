from hypothesis import given
from hypothesis import strategies as st

from san_core.frontier import OperatingPoint
from service.scheduling.load import Load, Promise

A, B = OperatingPoint(64), OperatingPoint(128)


def promise(deadline, forward=5.0, decode=0.0, point=A):
    return Promise(deadline, point=point, forward_ms=forward, decode_ms=decode)


def test_only_earlier_deadlines_go_before():
    load = Load(1)
    load.enter(promise(100))
    load.enter(promise(300))
    assert load.engine_ahead_ms(200, 0) == 5
    assert load.engine_ahead_ms(400, 0) == 10
    assert load.engine_ahead_ms(50, 0) == 0


def test_what_runs_goes_before_everyone_less_what_it_has_done():
    load = Load(1)
    running = load.enter(promise(1000, forward=20))
    load.started([running], now_ms=0)
    assert load.engine_ahead_ms(10, 0) == 20
    assert load.engine_ahead_ms(10, 15) == 5
    assert load.engine_ahead_ms(10, 99) == 0


def test_decoders_share_their_work():
    load = Load(2)
    for deadline in (10, 20, 30):
        load.enter(promise(deadline, decode=4.0))
    assert load.decode_ahead_ms(25) == 4
    last = promise(5, decode=8.0)
    load.enter(last)
    load.decoded(last)
    assert load.decode_ahead_ms(100) == 6


def test_slack_is_what_the_later_ones_can_spare():
    load = Load(1)
    load.enter(promise(100, forward=30))
    load.enter(promise(150, forward=30))
    assert load.slack_ms(50, 0) == 70
    assert load.slack_ms(120, 0) == 90
    assert load.slack_ms(200, 0) == float("inf")


def test_one_that_is_late_anyway_holds_nobody_up():
    load = Load(1)
    load.enter(promise(10, forward=30))
    assert load.slack_ms(5, 0) == float("inf")


def test_leaving_twice_is_harmless():
    load = Load(1)
    first, second = load.enter(promise(10)), load.enter(promise(10))
    load.leave(first)
    load.leave(first)
    assert len(load) == 1
    assert load.waiting_at(A) == 1
    load.started([second], 0)
    assert load.waiting_at(A) == 0
    load.leave(second)
    assert load.drain_ms(0) == 0


def test_load_is_when_requests_wait_for_one_another():
    load = Load(1)
    inside = [load.enter(promise(100)) for _ in range(2)]
    assert not load.is_loaded(0)  # one decodes while the other runs
    inside.append(load.enter(promise(100)))
    assert load.is_loaded(10)
    for each in inside:
        load.leave(each)
    assert load.is_loaded(60)  # what began then may end now
    assert not load.is_loaded(150)


def test_who_is_turned_away_is_load_too():
    load = Load(1)
    load.knocked(0)
    assert not load.is_loaded(0)
    for _ in range(2):
        load.enter(promise(100))
    load.knocked(10)
    assert load.is_loaded(10)
    empty = Load(1)
    assert not empty.is_refusing(0)
    empty.turned_away(0)
    assert empty.is_loaded(50)
    assert empty.is_refusing(50)
    assert not empty.is_loaded(150)
    assert not empty.is_refusing(150)


@given(
    st.lists(
        st.tuples(st.floats(0, 1000), st.floats(0, 50), st.sampled_from([A, B]), st.booleans()),
        max_size=20,
    )
)
def test_nothing_is_left_when_everyone_has_left(entries):
    load = Load(1)
    inside = [load.enter(promise(d, forward=f, point=p)) for d, f, p, _ in entries]
    assert load.engine_ahead_ms(float("inf"), 0) == sum(f for _, f, _, _ in entries) or entries
    load.started([p for p, e in zip(inside, entries, strict=True) if e[3]], 0)
    for each in reversed(inside):
        load.leave(each)
    assert len(load) == 0
    assert load.waiting_at(A) == load.waiting_at(B) == 0
    assert load.drain_ms(0) == 0
