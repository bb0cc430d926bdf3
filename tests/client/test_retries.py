from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from san_client import ConnectionFailedError, ParameterError, Retries
from san_client.errors import problem_error
from san_client.retries import pause_ms

RETRIES = Retries(attempts=4, first_pause_ms=10, longest_pause_ms=30)
NO_ANSWER = ConnectionFailedError("nobody there")


def overloaded(**members):
    return problem_error(429, members)


def test_what_will_not_pass_is_not_tried_again():
    assert pause_ms(RETRIES, 1, problem_error(422, {}), 1000, 0) is None
    assert isinstance(problem_error(422, {}), ParameterError)


def test_a_connection_that_was_closed_is_tried_again_at_once():
    assert pause_ms(RETRIES, 1, NO_ANSWER, 1000, 0.5) == 0


def test_pauses_grow_to_a_limit():
    assert [pause_ms(RETRIES, n, overloaded(), 1000, 1.0) for n in (1, 2, 3)] == [10, 20, 30]


def test_the_service_says_when_to_come_back():
    assert pause_ms(RETRIES, 1, overloaded(retry_after_ms=70), 1000, 0) == 70
    assert pause_ms(RETRIES, 1, problem_error(503, {}, 2.0), 5000, 0) == 2000


def test_attempts_are_counted():
    assert pause_ms(RETRIES, 4, overloaded(), 1000, 0) is None
    assert pause_ms(Retries(attempts=1), 1, NO_ANSWER, 1000, 0) is None


@given(
    attempt=st.integers(1, 10),
    left=st.floats(-10, 10_000),
    told=st.none() | st.floats(0, 10_000),
    chance=st.floats(0, 1),
)
def test_nobody_waits_past_the_deadline(attempt, left, told, chance):
    error = overloaded() if told is None else overloaded(retry_after_ms=told)
    pause = pause_ms(Retries(attempts=20), attempt, error, left, chance)
    assert pause is None or 0 <= pause < left


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"first_pause_ms": -1}])
def test_retries_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="attempts"):
        Retries(**wrong)
