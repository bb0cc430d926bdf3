"""One call as a plan without I/O: send, perhaps wait, send again. Both clients carry it out."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from san_client.errors import (
    ConnectionFailedError,
    DeadlineError,
    SanClientError,
    UnexpectedAnswerError,
    problem_error,
)
from san_client.retries import Retries, pause_ms

OnMiss = Literal["answer", "refuse"]

_SHORTEST_MS = 20.0
"""No attempt is given less time: a refusal, which tells what would work, takes a round trip too."""


@dataclass(frozen=True, slots=True)
class Send:
    """Make this request."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    content_type: str | None = None
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for so long."""

    ms: float


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    body: bytes
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The JSON of a success, and what it took."""

    data: Any
    took_ms: float
    attempts: int


Step = Send | Wait
Outcome = Reply | ConnectionFailedError | DeadlineError | None
Conversation = Generator[Step, Outcome, Result]


@dataclass(frozen=True, slots=True)
class Manner:
    """How a client behaves, whatever it asks."""

    retries: Retries
    timeout_ms: float
    """For a whole call, if no budget says otherwise."""
    network_ms: float
    """What of a budget is set aside for the way there and back."""
    clock: Callable[[], float]
    """Milliseconds, monotonic."""
    chance: Callable[[], float]


def converse(
    manner: Manner, send: Send, budget_ms: float | None = None, on_miss: OnMiss = "answer"
) -> Conversation:
    """One call, with as many attempts as there is time for.

    Each attempt is told what is left of the budget. A late answer is waited for, as long as a call
    may take, unless the client said refuse.
    """
    started = manner.clock()
    limit = manner.timeout_ms if budget_ms is None else budget_ms
    patience = limit if on_miss == "refuse" else max(limit, manner.timeout_ms)
    attempt = 0
    while True:
        attempt += 1
        gone = manner.clock() - started
        params = dict(send.params)
        if budget_ms is not None:
            params["budget_ms"] = _left(budget_ms, gone + manner.network_ms)
        timeout_s = max(patience - gone, _SHORTEST_MS) / 1000
        outcome = yield replace(send, params=params, timeout_s=timeout_s)
        data = _read(outcome)
        gone = manner.clock() - started
        if not isinstance(data, SanClientError):
            return Result(data, gone, attempt)
        pause = pause_ms(manner.retries, attempt, data, limit - gone, manner.chance())
        if pause is None:
            raise data
        if pause > 0:
            yield Wait(pause)


def _left(budget_ms: float, gone_ms: float) -> str:
    if gone_ms >= budget_ms:
        raise DeadlineError(f"Nothing is left of {budget_ms:g} ms after {gone_ms:.1f} ms.")
    return f"{budget_ms - gone_ms:.3f}"


def _read(outcome: Outcome) -> Any:
    """The JSON of a success, or the error."""
    if isinstance(outcome, SanClientError):
        return outcome
    assert isinstance(outcome, Reply)
    try:
        data = json.loads(outcome.body)
    except ValueError:
        data = None
    if 200 <= outcome.status < 300:
        if data is None:
            return UnexpectedAnswerError("The answer is not JSON: is this san-serve?")
        return data
    problem = data if isinstance(data, dict) else {}
    return problem_error(outcome.status, problem, _seconds(outcome.retry_after))


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdigit() else None
