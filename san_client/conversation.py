"""One call as a plan without I/O: send, perhaps wait, send again. Both clients carry it out."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from san_client.errors import (
    ConnectionFailedError,
    DeadlineError,
    SanClientError,
    UnexpectedAnswerError,
    problem_error,
)
from san_client.retries import Retries, pause_ms

T = TypeVar("T")

OnMiss = Literal["answer", "refuse"]


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
Conversation = Generator[Step, Outcome, T]
"""Yields what to do, is sent what came of it, returns the answer."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a client behaves, whatever it asks."""

    retries: Retries
    timeout_ms: float
    """For a whole call, if no budget says otherwise."""
    network_ms: float
    """What of a budget is set aside for the way there and back: the service counts its own time."""
    clock: Callable[[], float]
    """Milliseconds, monotonic."""
    chance: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Limits:
    """How long one call may take; all of it on the caller's clock, from `started_ms` on."""

    started_ms: float
    budget_ms: float | None
    """When the answer is due; what is left of it is what the service is told."""
    patience_ms: float
    """When nothing more is waited for: neither a late answer nor a refusal."""
    network_ms: float

    def left_ms(self, now_ms: float) -> float:
        """What is left of the time in which trying again makes sense."""
        due = self.patience_ms if self.budget_ms is None else self.budget_ms
        return min(due, self.patience_ms) - (now_ms - self.started_ms)

    def service_ms(self, now_ms: float) -> float | None:
        """The budget to tell the service now; raises if none is left."""
        if self.budget_ms is None:
            return None
        left = self.left_ms(now_ms) - self.network_ms
        if left <= 0:
            kept = f" and {self.network_ms:g} ms are the network's" if self.network_ms else ""
            raise DeadlineError(
                f"Nothing is left of {self.budget_ms:g} ms: {now_ms - self.started_ms:.1f} ms are "
                f"gone{kept}."
            )
        return left

    def timeout_s(self, now_ms: float) -> float:
        """How long to wait for the service's word, from now; raises if that time is over."""
        left = self.patience_ms - (now_ms - self.started_ms)
        if left <= 0:
            raise DeadlineError(f"No answer came within {self.patience_ms:g} ms.")
        return left / 1000


def limits(
    manner: Manner,
    *,
    started_ms: float | None = None,
    budget_ms: float | None = None,
    timeout_ms: float | None = None,
    on_miss: OnMiss = "answer",
) -> Limits:
    """With `refuse` nothing is waited for past the budget, unless `timeout_ms` says so."""
    patience = manner.timeout_ms
    if timeout_ms is not None:
        patience = timeout_ms
    elif budget_ms is not None:
        patience = budget_ms if on_miss == "refuse" else max(budget_ms, patience)
    started = manner.clock() if started_ms is None else started_ms
    return Limits(started, budget_ms, patience, manner.network_ms)


def converse(manner: Manner, send: Send, within: Limits | None = None) -> Conversation[Result]:
    """One call, with as many attempts as there is time for."""
    within = within or limits(manner)
    attempt = 0
    while True:
        attempt += 1
        now = manner.clock()
        params = dict(send.params)
        budget = within.service_ms(now)
        if budget is not None:
            params["budget_ms"] = f"{budget:.3f}"
        outcome = yield replace(send, params=params, timeout_s=within.timeout_s(now))
        data = _read(outcome)
        now = manner.clock()
        if not isinstance(data, SanClientError):
            return Result(data, now - within.started_ms, attempt)
        left = within.left_ms(now)
        pause = pause_ms(manner.retries, attempt, data, left, manner.chance())
        if pause is None:
            raise data
        if pause > 0:
            yield Wait(pause)


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
