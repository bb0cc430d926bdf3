from service.engines.build_limits import MOST_PER_CLIENT, MOST_WAITING, WINDOW_MS, BuildLimits
from tests.service.fakes import FakeClock


def test_a_client_gets_a_few_builds_a_minute_and_others_theirs():
    clock = FakeClock()
    limits = BuildLimits(clock)
    assert all(limits.allow("a", 0) for _ in range(MOST_PER_CLIENT))
    assert not limits.allow("a", 0)
    assert limits.allow("b", 0)
    clock.advance(WINDOW_MS)
    assert limits.allow("a", 0)
    assert limits.refused == 1


def test_few_builds_wait_at_a_time():
    limits = BuildLimits(FakeClock())
    assert limits.allow("a", MOST_WAITING - 1)
    assert not limits.allow("b", MOST_WAITING)


def test_as_many_clients_as_come_take_no_more_memory():
    clock = FakeClock()
    limits = BuildLimits(clock)
    for i in range(5000):
        limits.allow(str(i), 0)
    assert len(limits._begun) <= 1001
    clock.advance(WINDOW_MS + 1)
    assert limits.allow("late", 0)
    assert len(limits._begun) == 1
