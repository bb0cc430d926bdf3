"""A new bundle that proves itself: beside the one that serves, on a share of it, then in its place.

shadow    `load`: the candidate answers a sample of live pictures while nobody waits; nobody sees it
canary    `load` with a share: it serves some clients, always the same ones
promoted  `promote`: it serves everybody, and the old bundle stays ready for a while

Whenever it is seen to fall below the bounds, it is taken back. Every swap is an event.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from san_core.frontier import OperatingPoint
from service.errors import NoCandidateError, PromotionError, ReloadError
from service.images.decoder import Decoder
from service.observability.ledger import Ledger
from service.request.request import Outcome, Request
from service.runtime.clock import Clock
from service.scheduling.admission import Admission
from service.serving.bundles.deployment import Deployment
from service.serving.quality.idle_sampler import IdleSampler, Sample
from service.serving.quality.rerun import Rerun
from service.serving.quality.verdict import Bounds, Comparison, against_promotion, against_serving

logger = logging.getLogger(__name__)

_CHECK_S = 1.0
_PATIENCE_S = 0.5
"""How long a picture waits for a pause while the candidate serves clients: twenty decide, so a bad
one is found out within ten seconds of steady traffic too."""
_SHADOW_PATIENCE_S = 2.0
"""The same while nobody gets its answers: there is no hurry, and every run can cost a promise."""
_EVENTS = 16
_NEVER = float("inf")


class Stage(StrEnum):
    """How far a candidate has come."""

    NONE = "none"
    SHADOW = "shadow"
    CANARY = "canary"
    PROMOTED = "promoted"


@dataclass(frozen=True)
class Event:
    """Something that happened to a bundle."""

    result: str
    """loaded, swapped, promoted, rolled_back or dropped."""
    name: str
    version: str
    sha256: str
    at_s: float
    """Unix time."""
    why: str = ""


@dataclass(frozen=True)
class Parts:
    """What the service does for a rollout."""

    deploy: Callable[[Path, bool], Awaitable[Deployment]]
    """Make a deployment ready; True: of a candidate, with a small share of the memory."""
    install: Callable[[Deployment], None]
    retire: Callable[[Deployment], None]
    serving: Callable[[], Deployment | None]


class Rollout(IdleSampler):
    """One candidate at a time."""

    def __init__(
        self,
        parts: Parts,
        rerun: Rerun,
        decoder: Decoder,
        admission: Admission,
        ledger: Ledger,
        clock: Clock,
        *,
        fraction: float,
        bounds: Bounds,
        watch_ms: float,
    ) -> None:
        super().__init__(admission, fraction)
        self._parts = parts
        self._rerun = rerun
        self._decoder = decoder
        self._ledger = ledger
        self._clock = clock
        self._watch_ms = watch_ms
        self._lock = asyncio.Lock()
        self._promoted_ms = 0.0
        self.bounds = bounds
        self.stage = Stage.NONE
        self.other: Deployment | None = None
        """The candidate; once it is promoted, the bundle it replaced."""
        self.share = 0.0
        self.facts = Comparison()
        self.events: deque[Event] = deque(maxlen=_EVENTS)

    @property
    def patience_s(self) -> float:
        """How long a picture waits for a pause."""
        return _SHADOW_PATIENCE_S if self.stage is Stage.SHADOW else _PATIENCE_S

    @property
    def watched(self) -> Deployment | None:
        """The bundle that must prove itself."""
        return self._parts.serving() if self.stage is Stage.PROMOTED else self.other

    def deployment_for(self, client: str) -> Deployment | None:
        """Which bundle answers a client: the candidate for some, always the same ones."""
        serving = self._parts.serving()
        if self.share <= 0 or self.stage is not Stage.CANARY:
            return serving
        digest = hashlib.blake2b(client.encode(), digest_size=4).digest()
        return self.other if int.from_bytes(digest) < self.share * 2**32 else serving

    def note(self, result: str, deployment: Deployment, why: str = "") -> None:
        """Remember an event, for `/candidate` and the dashboards."""
        manifest = deployment.manifest
        self.events.append(
            Event(result, manifest.name, manifest.version, deployment.sha256, time.time(), why)
        )
        told = f"{result} ({why})" if why else result
        logger.info("bundle %s %s: %s", manifest.name, manifest.version, told.replace("_", " "))

    async def load(self, path: Path, share: float) -> None:
        """Take a bundle as the candidate; another one that was there is dropped."""
        async with self._lock:
            serving = self._parts.serving()
            if serving is None or self.stage is Stage.PROMOTED:
                raise ReloadError("Another bundle is still being watched; try again later.")
            made = await self._parts.deploy(path, True)
            self._drop("dropped", "another candidate was loaded")
            same = made.manifest.classes == serving.manifest.classes
            self.facts = Comparison(same_classes=same)
            self.other, self.share = made, share
            self.stage = Stage.CANARY if share > 0 else Stage.SHADOW
            self.note("loaded", made, f"serves {share:.1%} of the clients" if share else "")

    def against(self) -> list[str]:
        """Why the candidate may not be promoted; empty if it may."""
        return against_promotion(self.facts, self.bounds)

    async def promote(self, *, force: bool = False) -> None:
        """Let the candidate serve everybody, if it is not worse by the bounds."""
        async with self._lock:
            old, new = self._parts.serving(), self.other
            if new is None or old is None or self.stage is Stage.PROMOTED:
                raise NoCandidateError("There is no candidate; load one first.")
            reasons = [] if force else self.against()
            if reasons:
                raise PromotionError("The candidate is not promoted. " + " ".join(reasons), reasons)
            self._parts.install(new)
            self.other, self.stage, self.share = old, Stage.PROMOTED, 0.0
            self._promoted_ms = self._clock()
            self.facts = Comparison(same_classes=force or self.facts.same_classes)
            self._ledger.reloads["promoted"] += 1
            self.note("promoted", new)

    async def drop(self, why: str = "on request") -> None:
        """Give the candidate up; once promoted, go back to the bundle it replaced."""
        async with self._lock:
            if self.other is None:
                raise NoCandidateError("There is no candidate.")
            if self.stage is Stage.PROMOTED:
                self._go_back(why)
            else:
                self._drop("dropped", why)

    def replaced(self) -> None:
        """The bundle that serves was swapped by a reload: there is nothing to go back to."""
        if self.other is not None:
            self._drop("dropped", "the bundle was reloaded")

    def _drop(self, result: str, why: str) -> None:
        other, self.other = self.other, None
        self.stage, self.share = Stage.NONE, 0.0
        if other is not None:
            self.note(result, other, why)
            self._parts.retire(other)

    def _go_back(self, why: str) -> None:
        bad, good = self._parts.serving(), self.other
        assert bad is not None
        assert good is not None
        self._parts.install(good)
        self.other, self.stage = None, Stage.NONE
        self._ledger.reloads["rolled_back"] += 1
        self.note("rolled_back", bad, why)
        self._parts.retire(bad)

    def observe(self, record: Request) -> None:
        """Learn from a request that the watched bundle served."""
        if self.stage not in (Stage.CANARY, Stage.PROMOTED):
            return
        watched = self.watched
        if watched is None or record.bundle != watched.sha256 or record.terms.budget_ms is None:
            return
        feasible = record.idle is None or record.idle.feasible
        if feasible and record.outcome in (Outcome.ANSWERED, Outcome.LATE, Outcome.EXPIRED):
            self.facts.promises.add(record.met)

    def observe_feedback(self, bundle: str, *, right: bool, expected: float | None) -> None:
        """Learn from feedback on an answer of the watched bundle."""
        watched = self.watched
        if watched is not None and bundle == watched.sha256 and expected is not None:
            self.facts.feedback.add(right)
            self.facts.feedback_expected.add(expected)

    async def compare(self, sample: Sample) -> None:
        """Have both bundles answer a picture at the best point that both have ready."""
        serving, other, facts = self._parts.serving(), self.other, self.facts
        if serving is None or other is None:
            return
        watched = serving if self.stage is Stage.PROMOTED else other
        known = other if watched is serving else serving
        points = _best_ready(known, watched)
        if points is None:
            return
        header = await self._decoder.header(sample.image, _NEVER)
        answers = []
        for deployment, point in zip((known, watched), points, strict=True):
            ran = await self._rerun(deployment, point, sample.image)
            if ran is None:
                return  # evicted meanwhile
            answers.append(ran)
        (mine, mine_ms), (its, its_ms) = answers
        same = (
            known.manifest.classes[int(mine.argmax())]
            == (watched.manifest.classes[int(its.argmax())])
        )
        facts.agreement.add(same)
        facts.forward_now_ms.add(mine_ms)
        facts.forward_ms.add(its_ms)
        self._ledger.candidate["same" if same else "different"] += 1
        size = len(sample.image)
        for share, deployment in ((facts.expected_now, known), (facts.expected, watched)):
            share.add(deployment.idle_host.look(header, size, sample.budget_ms).accuracy or 0.0)

    async def keep_watch(self) -> None:
        """Take a bundle back as soon as it falls below the bounds."""
        while True:
            await asyncio.sleep(_CHECK_S)
            async with self._lock:
                self.check()

    def check(self) -> None:
        """Look at the facts once."""
        if self.stage in (Stage.NONE, Stage.SHADOW):
            return
        reasons = against_serving(self.facts, self.bounds)
        if reasons and self.stage is Stage.PROMOTED:
            self._go_back(" ".join(reasons))
        elif reasons:
            self._ledger.reloads["rolled_back"] += 1
            self._drop("rolled_back", " ".join(reasons))
        elif self.stage is Stage.PROMOTED and (self._clock() - self._promoted_ms > self._watch_ms):
            self._drop("retired", "the new bundle has proved itself")


def _best_ready(one: Deployment, other: Deployment) -> tuple[OperatingPoint, OperatingPoint] | None:
    """The best point that both have ready, or the best of each; None if one has none.

    A candidate has few: those that answer any budget, not the whole frontier.
    """
    ones, others = (
        [listing.point for listing in deployment.frontier if listing.point in deployment.cache]
        for deployment in (one, other)
    )
    shared = [point for point in ones if point in others]
    if shared:
        return shared[-1], shared[-1]
    return (ones[-1], others[-1]) if ones and others else None
