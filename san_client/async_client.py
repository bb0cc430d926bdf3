"""The asynchronous client, on asyncio or trio."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Self, Unpack

import anyio
import httpx

from san_client import answers, calls
from san_client.conversation import Conversation, Manner, Outcome, Send, T, Wait
from san_client.errors import SanClientError
from san_client.http import address, monotonic_ms, read_response, request_of, too_late, trouble
from san_client.images import Image, image_bytes, several
from san_client.retries import Retries


class AsyncClient:
    """Talks to one service over a pool of connections; share it between tasks.

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
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = monotonic_ms,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._http = httpx.AsyncClient(base_url=address(url), headers=headers, transport=transport)
        self._manner = Manner(retries, timeout_s * 1000, network_ms, clock, random.random)
        self._sleep = sleep

    async def classify(self, image: Image, **terms: Unpack[calls.Terms]) -> answers.Answer:
        """Classify one image; the budget covers everything from this call on, retries included."""
        started = self._manner.clock()
        if not isinstance(image, bytes):
            image = await anyio.to_thread.run_sync(image_bytes, image)
        return await self._carry_out(calls.classify_call(self._manner, started, image, **terms))

    async def classify_many(
        self, images: Iterable[Image], *, in_flight: int = 8, **terms: Unpack[calls.Terms]
    ) -> list[answers.Answer | SanClientError | OSError]:
        """Classify images, at most `in_flight` at a time, each with the budget to itself.

        The answers come in the order of the images; in place of one that failed, or of a file that
        cannot be read, is its error.
        """
        found: dict[int, answers.Answer | SanClientError | OSError] = {}
        coming = iter(enumerate(several(images, in_flight)))

        async def work() -> None:
            for row, image in coming:
                try:
                    found[row] = await self.classify(image, **terms)
                except (SanClientError, OSError) as error:
                    found[row] = error

        async with anyio.create_task_group() as group:
            for _ in range(in_flight):
                group.start_soon(work)
        return [found[row] for row in sorted(found)]

    async def feedback(
        self, request_id: str, *, label: str | None = None, index: int | None = None
    ) -> answers.Judgement:
        """Say what an image really was."""
        call = calls.feedback_call(self._manner, request_id, label=label, index=index)
        return await self._carry_out(call)

    async def resolutions(self) -> tuple[answers.OperatingPoint, ...]:
        """Every operating point of the service."""
        return await self._carry_out(calls.resolutions_call(self._manner))

    async def version(self) -> answers.Version:
        """What runs there."""
        return await self._carry_out(calls.version_call(self._manner))

    async def is_ready(self) -> bool:
        """Whether the service takes requests now."""
        return await self._carry_out(calls.ready_call(self._manner))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _carry_out(self, conversation: Conversation[T]) -> T:
        outcome: Outcome = None
        while True:
            try:
                step = conversation.send(outcome)
            except StopIteration as done:
                answer: T = done.value
                return answer
            outcome = None
            if isinstance(step, Wait):
                await self._sleep(step.ms / 1000)
            else:
                outcome = await self._send(step)

    async def _send(self, step: Send) -> Outcome:
        try:
            # httpx bounds each phase; this bounds their sum.
            with anyio.fail_after(step.timeout_s):
                return read_response(await self._http.request(**request_of(step)))
        except TimeoutError:
            return too_late(step)
        except httpx.HTTPError as error:
            return trouble(error, step)
