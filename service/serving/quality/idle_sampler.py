"""A few live pictures are run again while no request waits."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from dataclasses import dataclass

from service.scheduling.admission import Admission

logger = logging.getLogger(__name__)

_PENDING = 16
_PENDING_BYTES = 32_000_000
_CROWDED = 4
"""Times the patience after which a sample is looked at all the same, behind requests."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One picture that was answered."""

    image: bytes
    resolution: int
    predicted: int
    bundle: str
    """SHA-256 of the bundle that answered."""
    budget_ms: float | None = None


class IdleSampler:
    """Keeps a few samples and looks at them when no request has come for a while."""

    def __init__(
        self,
        admission: Admission,
        fraction: float,
        *,
        chance: random.Random | None = None,
        poll_s: float = 0.05,
    ) -> None:
        self._admission = admission
        self._fraction = fraction
        self._chance = chance or random.Random()
        self._poll_s = poll_s
        self._pending: deque[Sample] = deque(maxlen=_PENDING)

    @property
    def patience_s(self) -> float:
        """After so long without a pause a sample is looked at as soon as no request is inside."""
        return float("inf")

    def offer(self, sample: Sample) -> None:
        """Perhaps keep a picture for later; the oldest make room."""
        if self._fraction <= 0 or self._chance.random() >= self._fraction:
            return
        if sum(len(s.image) for s in self._pending) + len(sample.image) <= _PENDING_BYTES:
            self._pending.append(sample)

    async def watch(self) -> None:
        """Look at samples in pauses, one after each look around.

        The pause between two requests of one client is too short: the next would find the engine
        taken. So would the first of a burst, if sample followed sample in a pause.
        """
        admission, seen, waited_s = self._admission, -1, 0.0
        while True:
            await asyncio.sleep(self._poll_s)
            waited_s += self._poll_s
            calm, seen = admission.facts.admitted == seen, admission.facts.admitted
            due_s = 0.0 if calm else self.patience_s
            if not admission.is_idle:
                due_s = _CROWDED * self.patience_s
            if self._pending and waited_s >= due_s and not admission.draining:
                waited_s = 0.0
                await self._look()

    async def _look(self) -> None:
        sample = self._pending.popleft()
        try:
            await self.compare(sample)
        except Exception:
            logger.exception("a sampled picture could not be run again")

    async def compare(self, sample: Sample) -> None:
        """What to do with a sample."""
        raise NotImplementedError
