"""The plan of a call, with a fake clock and no I/O."""

from __future__ import annotations

import json

import pytest

from san_client import (
    ConnectionFailedError,
    DeadlineError,
    ImpossibleBudgetError,
    OverloadedError,
    Retries,
    UnexpectedAnswerError,
)
from san_client.conversation import Manner, Reply, Send, Wait, converse, limits


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def manner(clock):
    return Manner(Retries(attempts=3), 10_000, 0.0, clock, lambda: 0.0)


CALL = Send("POST", "/classify", {"top_k": "3"}, b"image")
OK = Reply(200, b'{"fine": true}')


def overloaded(ms):
    return Reply(429, json.dumps({"detail": "busy", "retry_after_ms": ms}).encode(), "1")


def converse_within(manner, budget_ms, on_miss="answer", **more):
    return converse(manner, CALL, limits(manner, budget_ms=budget_ms, on_miss=on_miss, **more))


def finish(conversation, outcome):
    with pytest.raises(StopIteration) as done:
        conversation.send(outcome)
    return done.value.value


def test_the_first_attempt_gets_the_whole_budget(manner, clock):
    call = converse_within(manner, 50)
    step = next(call)
    assert step.params == {"top_k": "3", "budget_ms": "50.000"}
    assert step.timeout_s == 10  # a late answer is wanted
    clock.now += 12
    result = finish(call, OK)
    assert (result.data, result.took_ms, result.attempts) == ({"fine": True}, 12, 1)


def test_without_a_budget_none_is_sent(manner):
    assert next(converse(manner, CALL)).params == {"top_k": "3"}


def test_a_later_attempt_gets_what_is_left(manner, clock):
    call = converse_within(manner, 50)
    next(call)
    clock.now += 5
    assert call.send(overloaded(20)) == Wait(20)
    clock.now += 20
    assert call.send(None).params["budget_ms"] == "25.000"
    assert finish(call, OK).attempts == 2


def test_it_gives_up_when_waiting_would_break_the_budget(manner, clock):
    call = converse_within(manner, 50)
    next(call)
    clock.now += 5
    with pytest.raises(OverloadedError, match="busy"):
        call.send(overloaded(46))


def test_a_dropped_connection_is_tried_again_at_once(manner, clock):
    call = converse_within(manner, 50)
    next(call)
    clock.now += 1
    step = call.send(ConnectionFailedError("reset"))
    assert isinstance(step, Send)
    assert step.params["budget_ms"] == "49.000"


def test_the_network_gets_its_share(clock):
    manner = Manner(Retries(), 10_000, 8.0, clock, lambda: 0.0)
    assert next(converse_within(manner, 50)).params["budget_ms"] == "42.000"
    with pytest.raises(DeadlineError, match="network"):
        next(converse_within(manner, 8))


@pytest.mark.parametrize("budget", [50, 1, 0.25])
def test_who_refuses_a_late_answer_waits_for_nothing_past_the_budget(manner, budget):
    assert next(converse_within(manner, budget, "refuse")).timeout_s == budget / 1000


def test_a_refusal_is_waited_for_if_the_caller_says_how_long(manner):
    step = next(converse_within(manner, 1, "refuse", timeout_ms=40))
    assert (step.params["budget_ms"], step.timeout_s) == ("1.000", 0.04)


def test_every_attempt_ends_when_the_call_must(manner, clock):
    call = converse_within(manner, 50, "refuse")
    next(call)
    clock.now += 30
    step = call.send(ConnectionFailedError("reset"))
    assert (step.params["budget_ms"], step.timeout_s) == ("20.000", 0.02)
    clock.now += 21
    with pytest.raises(ConnectionFailedError):
        call.send(ConnectionFailedError("reset"))


def test_a_timeout_shorter_than_the_budget_is_the_budget(manner):
    step = next(converse_within(manner, 50, timeout_ms=30))
    assert (step.params["budget_ms"], step.timeout_s) == ("30.000", 0.03)


def test_a_pause_that_outlasts_the_time_ends_the_call_unsent(manner, clock):
    call = converse_within(manner, None, timeout_ms=30)
    next(call)
    clock.now += 5
    assert call.send(overloaded(20)) == Wait(20)
    clock.now += 26  # the sleep took longer than it should
    with pytest.raises(DeadlineError, match="30 ms"):
        call.send(None)


def test_what_went_by_before_the_first_attempt_counts(manner, clock):
    begun = clock.now
    clock.now += 15  # reading the file
    call = converse_within(manner, 50, started_ms=begun)
    assert next(call).params["budget_ms"] == "35.000"
    clock.now += 5
    assert finish(call, OK).took_ms == 20


def test_a_timeout_is_final(manner):
    call = converse_within(manner, 50, "refuse")
    next(call)
    with pytest.raises(DeadlineError):
        call.send(DeadlineError("too late"))


@pytest.mark.parametrize("accuracy", [0.5, None])
def test_an_impossible_budget_says_what_would_work(manner, accuracy):
    call = converse_within(manner, 1, "refuse")
    next(call)
    problem = {"detail": "no", "smallest_budget_ms": 4.2, "expected_accuracy": accuracy}
    with pytest.raises(ImpossibleBudgetError) as caught:
        call.send(Reply(422, json.dumps(problem).encode()))
    assert (caught.value.smallest_budget_ms, caught.value.expected_accuracy) == (4.2, accuracy)


@pytest.mark.parametrize("body", [b"<html>", b"", b"\xff"])
def test_an_answer_that_is_not_json_is_unexpected(manner, body):
    call = converse(manner, CALL)
    next(call)
    with pytest.raises(UnexpectedAnswerError):
        call.send(Reply(200, body))
