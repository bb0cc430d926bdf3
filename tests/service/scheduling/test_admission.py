import pytest

from service.errors import (
    DrainingError,
    NotReadyError,
    OverloadedError,
)
from service.scheduling.admission import Admission


def test_the_door_counts_requests_and_bytes_and_forgets_those_who_left():
    door = Admission(max_requests=2, max_bytes=100)
    with pytest.raises(NotReadyError):
        door.check()
    door.ready = True
    door.check()
    with door.enter(60), pytest.raises(OverloadedError):
        door.enter(50)
    with door.enter(60), door.enter(40), pytest.raises(OverloadedError):
        door.enter(0)
    assert door.is_idle
    assert door.bytes == 0
    door.draining = True
    with pytest.raises(DrainingError):
        door.check()


def test_a_request_that_fails_inside_leaves_too():
    door = Admission(max_requests=1, max_bytes=100)
    with pytest.raises(ZeroDivisionError), door.enter(10):
        raise ZeroDivisionError
    assert door.is_idle
