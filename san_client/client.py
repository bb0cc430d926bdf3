"""The blocking client."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import httpx

from san_client import answers, calls
from san_client.conversation import Conversation, Manner, OnMiss, Outcome, Result, Send, Wait
from san_client.errors import ConnectionFailedError, UnavailableError
from san_client.http import monotonic_ms, read_response, request_of, trouble
from san_client.retries import Retries


class Client:
    """Talks to one service over a pool of connections; safe to share between threads."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        timeout_s: float = 10.0,
        network_ms: float = 0.0,
        retries: Retries = Retries(),  # noqa: B008 - frozen
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = monotonic_ms,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._http = httpx.Client(base_url=url, headers=headers, transport=transport)
        self._manner = Manner(retries, timeout_s * 1000, network_ms, clock, random.random)
        self._sleep = sleep

    def classify(
        self,
        image: calls.Image,
        *,
        budget_ms: float | None = None,
        resolution: int | None = None,
        mode: str | None = None,
        min_accuracy: float | None = None,
        top_k: int | None = None,
        on_miss: OnMiss = "answer",
    ) -> answers.Answer:
        """Classify one image; the budget covers everything from this call on, retries included."""
        result = self._carry_out(
            calls.classify_call(
                self._manner,
                calls.image_bytes(image),
                budget_ms=budget_ms,
                resolution=resolution,
                mode=mode,
                min_accuracy=min_accuracy,
                top_k=top_k,
                on_miss=on_miss,
            )
        )
        return answers.read_answer(
            result.data, round_trip_ms=result.took_ms, attempts=result.attempts
        )

    def feedback(
        self, request_id: str, *, label: str | None = None, index: int | None = None
    ) -> answers.Judgement:
        """Say what an image really was."""
        call = calls.feedback_call(self._manner, request_id, label=label, index=index)
        return answers.read_judgement(self._carry_out(call).data)

    def resolutions(self) -> tuple[answers.OperatingPoint, ...]:
        """Every operating point of the service."""
        result = self._carry_out(calls.get_call(self._manner, "/resolutions"))
        return answers.read_points(result.data)

    def version(self) -> answers.Version:
        """What runs there."""
        result = self._carry_out(calls.get_call(self._manner, "/version"))
        return answers.read_version(result.data)

    def is_ready(self) -> bool:
        """Whether the service takes requests now."""
        try:
            self._carry_out(calls.ready_call(self._manner))
        except (ConnectionFailedError, UnavailableError):
            return False
        return True

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _carry_out(self, conversation: Conversation) -> Result:
        outcome: Outcome = None
        while True:
            try:
                step = conversation.send(outcome)
            except StopIteration as done:
                result: Result = done.value
                return result
            outcome = None
            if isinstance(step, Wait):
                self._sleep(step.ms / 1000)
            else:
                outcome = self._send(step)

    def _send(self, step: Send) -> Outcome:
        try:
            return read_response(self._http.request(**request_of(step)))
        except httpx.HTTPError as error:
            return trouble(error, step)
