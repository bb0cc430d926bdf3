"""How replicas reach one another: a post office in the same Ray application.

`POST /admin/reload` and `POST /feedback` arrive at one replica, and concern others. Each replica
keeps asking the office for mail, so nobody needs an address; Ray restarts the office if it dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import tempfile
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

from service.processes.crew import Crew, Facts

logger = logging.getLogger(__name__)

_POLL_S = 5.0
"""How long a replica waits at the office for mail."""
_GONE_S = 3 * _POLL_S
_PATIENCE_S = 2.0


class PostOffice:
    """Passes questions to every other replica and collects the answers."""

    def __init__(self) -> None:
        self._boxes: dict[str, asyncio.Queue[tuple[int, str, Facts]]] = {}
        self._seen: dict[str, float] = {}
        self._waiting: dict[tuple[int, str], asyncio.Future[Facts]] = {}
        self._number = count()

    async def fetch(self, me: str) -> tuple[int, str, Facts] | None:
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

    async def reply(self, me: str, number: int, answer: Facts) -> None:
        """A replica's answer to a question."""
        waiting = self._waiting.get((number, me))
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    async def ask(
        self, me: str, what: str, facts: Facts, patience_s: float | None
    ) -> list[Facts | None]:
        """Every other replica's answer; None for one that does not give any in time."""
        for name in [n for n, seen in self._seen.items() if _now() - seen > _GONE_S]:
            del self._seen[name], self._boxes[name]
        number, others = next(self._number), [name for name in self._boxes if name != me]
        futures = []
        for name in others:
            future: asyncio.Future[Facts] = asyncio.get_running_loop().create_future()
            self._waiting[number, name] = future
            futures.append(future)
            self._boxes[name].put_nowait((number, what, facts))
        try:
            if futures:
                await asyncio.wait(futures, timeout=patience_s)
            return [f.result() if f.done() else None for f in futures]
        finally:
            for name in others:
                del self._waiting[number, name]


def _now() -> float:
    return asyncio.get_running_loop().time()


class RayPeers(Crew):
    """The other replicas, as one of them sees them."""

    def __init__(self, office: Any, name: str) -> None:
        super().__init__()
        self._office = office
        self._name = name
        self._reading: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until no other replica on this node loads or measures."""
        with (Path(tempfile.gettempdir()) / "san-serve-turn.lock").open("ab") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.05)
            yield

    async def listen(self) -> None:
        """Read mail from now on."""
        self._reading = asyncio.create_task(self._read(), name="mail")

    async def close(self) -> None:
        """Read no more."""
        if self._reading is not None:
            self._reading.cancel()

    async def ask(
        self, what: str, facts: Facts | None = None, patience_s: float | None = _PATIENCE_S
    ) -> list[Facts | None]:
        """Ask all others at once."""
        found: list[Facts | None] = await self._office.ask.remote(
            self._name, what, facts or {}, patience_s
        )
        return found

    async def _read(self) -> None:
        while True:
            try:
                mail = await self._office.fetch.remote(self._name)
            except Exception:
                logger.exception("the post office does not answer")
                await asyncio.sleep(1)
                continue
            if mail is not None:
                asyncio.create_task(self._answer_mail(*mail))  # noqa: RUF006

    async def _answer_mail(self, number: int, what: str, facts: Facts) -> None:
        try:
            answer = await self._handlers[what](facts)
        except Exception as error:
            logger.exception("a question of another replica failed")
            answer = {"problem": str(error)}
        await self._office.reply.remote(self._name, number, answer)
