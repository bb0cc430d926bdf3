"""How replicas reach one another: a post office in the same Ray application.

`POST /admin/reload` and `POST /feedback` arrive at one replica, and concern others. Each replica
keeps asking the office for mail, so nobody needs an address; Ray restarts the office if it dies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

logger = logging.getLogger(__name__)

_POLL_S = 5.0
"""How long a replica waits at the office for mail."""
_GONE_S = 3 * _POLL_S
_PATIENCE_S = 60.0
"""How long a replica may take to answer: a reload measures the host if it must."""

Answer = Callable[[bytes], Awaitable[bytes]]


class PostOffice:
    """Passes questions to every other replica and collects the answers."""

    def __init__(self) -> None:
        self._boxes: dict[str, asyncio.Queue[tuple[int, bytes]]] = {}
        self._seen: dict[str, float] = {}
        self._waiting: dict[tuple[int, str], asyncio.Future[bytes]] = {}
        self._number = count()

    async def fetch(self, me: str) -> tuple[int, bytes] | None:
        """The next question for a replica, or None after a while."""
        box = self._boxes.setdefault(me, asyncio.Queue())
        self._seen[me] = _now()
        try:
            async with asyncio.timeout(_POLL_S):
                return await box.get()
        except TimeoutError:
            return None
        finally:
            self._seen[me] = _now()

    async def reply(self, me: str, number: int, answer: bytes) -> None:
        """A replica's answer to a question."""
        waiting = self._waiting.get((number, me))
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    async def ask(
        self, me: str, question: bytes, patience_s: float = _PATIENCE_S
    ) -> dict[str, bytes]:
        """The answers of all other replicas that give one in time."""
        for name in [n for n, seen in self._seen.items() if _now() - seen > _GONE_S]:
            del self._seen[name], self._boxes[name]
        number, others = next(self._number), [name for name in self._boxes if name != me]
        futures: dict[str, asyncio.Future[bytes]] = {}
        for name in others:
            futures[name] = asyncio.get_running_loop().create_future()
            self._waiting[number, name] = futures[name]
            self._boxes[name].put_nowait((number, question))
        try:
            if futures:
                await asyncio.wait(futures.values(), timeout=patience_s)
            return {name: future.result() for name, future in futures.items() if future.done()}
        finally:
            for name in others:
                del self._waiting[number, name]


def _now() -> float:
    return asyncio.get_running_loop().time()


class RayPeers:
    """The other replicas, as one of them sees them."""

    def __init__(self, office: Any, name: str) -> None:
        self._office = office
        self._name = name
        self._reading: asyncio.Task[None] | None = None

    async def open(self, answer: Answer) -> None:
        """Read mail from now on."""
        self._reading = asyncio.create_task(self._read(answer), name="mail")

    async def close(self) -> None:
        """Read no more."""
        if self._reading is not None:
            self._reading.cancel()

    async def ask(self, question: bytes) -> dict[str, bytes]:
        """Ask all others at once."""
        found: dict[str, bytes] = await self._office.ask.remote(self._name, question)
        return found

    async def _read(self, answer: Answer) -> None:
        while True:
            try:
                mail = await self._office.fetch.remote(self._name)
            except Exception:
                logger.exception("the post office does not answer")
                await asyncio.sleep(1)
                continue
            if mail is not None:
                asyncio.create_task(self._reply(answer, *mail))  # noqa: RUF006

    async def _reply(self, answer: Answer, number: int, question: bytes) -> None:
        try:
            await self._office.reply.remote(self._name, number, await answer(question))
        except Exception:
            logger.exception("a question of another replica failed")
