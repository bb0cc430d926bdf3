"""The blocking client."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, Unpack

import httpx

from san_client import answers, calls
from san_client.conversation import Conversation, Manner, Outcome, Send, T, Wait
from san_client.errors import SanClientError
from san_client.http import address, monotonic_ms, read_response, request_of, trouble
from san_client.images import Image, image_bytes, several
from san_client.retries import Retries


class Client:
    """Talks to one service over a pool of connections; safe to share between threads.

    Args:
        url: where the service is.
        api_key: one of `SAN_API_KEYS`; sent as `Authorization: Bearer KEY`.
        timeout_s: how long to wait for a call that has no `timeout_ms` of its own.
        network_ms: the round trip, which is taken off the budget that the service is told.
        retries: how often to try again after a refusal or a dropped connection.
        transport: httpx's way to the service; for tests and proxies.
        clock: milliseconds that never go back; for tests.
        sleep: how to wait between attempts; for tests.
    """

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
        self._http = httpx.Client(base_url=address(url), headers=headers, transport=transport)
        self._manner = Manner(retries, timeout_s * 1000, network_ms, clock, random.random)
        self._sleep = sleep

    def classify(self, image: Image, **terms: Unpack[calls.Terms]) -> answers.Answer:
        """Classify one image; the budget covers everything from this call on, retries included."""
        started = self._manner.clock()
        data = image_bytes(image)
        return self._carry_out(calls.classify_call(self._manner, started, data, **terms))

    def classify_many(
        self, images: Iterable[Image], *, in_flight: int = 8, **terms: Unpack[calls.Terms]
    ) -> list[answers.Answer | SanClientError | OSError]:
        """Classify images, at most `in_flight` at a time, each with the budget to itself.

        The answers come in the order of the images; in place of one that failed, or of a file that
        cannot be read, is its error.
        """

        def one(image: Image) -> answers.Answer | SanClientError | OSError:
            try:
                return self.classify(image, **terms)
            except (SanClientError, OSError) as error:
                return error

        wanted = several(images, in_flight)
        with ThreadPoolExecutor(max_workers=in_flight) as pool:
            return list(pool.map(one, wanted))

    def feedback(
        self, request_id: str, *, label: str | None = None, index: int | None = None
    ) -> answers.Judgement:
        """Say what an image really was."""
        call = calls.feedback_call(self._manner, request_id, label=label, index=index)
        return self._carry_out(call)

    def resolutions(self) -> tuple[answers.OperatingPoint, ...]:
        """Every operating point of the service."""
        return self._carry_out(calls.resolutions_call(self._manner))

    def version(self) -> answers.Version:
        """What runs there."""
        return self._carry_out(calls.version_call(self._manner))

    def is_ready(self) -> bool:
        """Whether the service takes requests now."""
        return self._carry_out(calls.ready_call(self._manner))

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

    def _carry_out(self, conversation: Conversation[T]) -> T:
        outcome: Outcome = None
        while True:
            try:
                step = conversation.send(outcome)
            except StopIteration as done:
                answer: T = done.value
                return answer
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
