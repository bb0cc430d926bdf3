"""Which bundle serves, and how another one takes its place.

`make` has a deployment ready beside the one that serves; `install` swaps it in, and each request
keeps the deployment that it began with; `retire` closes the old one after its last request.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

from san_core.bundle import DEFAULT_BUNDLE, Bundle
from service.engines.base import Engine
from service.engines.openvino.disk_cache import user_cache
from service.errors import OverloadedError
from service.runtime.turns import turn
from service.scheduling.admission import Admission
from service.serving.bundles.completion import Completion
from service.serving.bundles.deploying import deploy
from service.serving.bundles.deployment import Deployment, EngineChoice, Machinery
from service.serving.bundles.room import capacity, room_beside
from service.serving.bundles.steps import Steps
from service.serving.tasks import Tasks
from service.settings import MEGA

logger = logging.getLogger(__name__)

_PREPARE_S = 20.0
_MEASURE_AGAIN_S = 30.0
"""Between looks at whether times must be taken again."""
_PATIENCE_MS, _LOOK_AGAIN_S = 1000.0, 0.02
"""How long a build in the background waits until no request is inside, and how often it looks."""
_PAUSE_MS = 2000.0
"""After so long without a request this host's times are taken: a run cannot be interrupted, and the
largest batch takes up to 0.1 s, so that between two requests of steady traffic it would make the
second one late."""
_COLLECTIONS, _COLLECT_AGAIN_S = 10, 0.5
"""How often the collector looks for a deployment that was replaced."""
_BESIDE = 4
"""A candidate gets a quarter of the memory for networks."""
_MOST_LOADS, _WINDOW_MS = 4, 60_000.0
"""Bundles that are made ready beside the one that serves within a minute. Each takes about four
seconds of a core, so that these take an eighth of two."""


class Bundles:
    """The deployment that serves, and its successor."""

    def __init__(
        self,
        machinery: Machinery,
        choose_engine: EngineChoice,
        admission: Admission,
        tasks: Tasks,
        warm_up: Callable[[Deployment], Awaitable[None]],
    ) -> None:
        self.serving: Deployment | None = None
        """Swapped as a whole."""
        self.choose_engine = choose_engine
        self.first_steps = Steps(machinery.clock)
        """How far the bundle is that the service starts with."""
        self._machinery = machinery
        self._settings = machinery.settings
        self._admission = admission
        self._tasks = tasks
        self._warm_up = warm_up
        self._completing: asyncio.Task[None] | None = None
        """Completes the deployment that serves."""
        self._begun: deque[float] = deque(maxlen=_MOST_LOADS)
        """When bundles were last begun to be made ready beside it."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """While it lasts no other process of this host builds or measures."""
        return turn(self._settings.cache_dir or user_cache())

    async def make_first(self) -> Deployment:
        """Make the bundle ready that the service starts with."""
        async with self.turn():
            steps = self.first_steps
            deployment = await deploy(
                self._machinery, self._settings.bundle, self.choose_engine, steps
            )
            steps.begin()
            await self._warm_up(deployment)
            deployment.model.measurements.start_ms = steps.end()  # kept with the other times
        return deployment

    async def is_unchanged(self) -> bool:
        """Whether the bundle's file holds what serves already."""
        serving, path = self.serving, self._settings.bundle or DEFAULT_BUNDLE
        if serving is None:
            return False
        return await self._machinery.loader.submit(lambda: _sha256(path)) == serving.sha256

    async def make(self, path: Path | None, beside: bool = False) -> Deployment:
        """Make a bundle ready; a candidate gets a part of the memory of the one that serves."""
        path = path or DEFAULT_BUNDLE
        machinery, most = self._machinery, self._settings.cache_megabytes
        if beside:
            most //= _BESIDE
        if self.serving is not None:
            room = await room_beside(self.serving, path)
            most = most if room is None else min(most, room // MEGA)
        if most < self._settings.cache_megabytes:
            less = {"cache_megabytes": max(1, most)}
            machinery = replace(machinery, settings=self._settings.model_copy(update=less))

        def choose(bundle: Bundle) -> Engine:
            self._count_load()  # only now: a file that cannot be read costs little
            return self.choose_engine(bundle)

        deployment = await deploy(machinery, path, choose, Steps(machinery.clock))
        try:
            await self._prepare(deployment)
        except BaseException:
            await deployment.close()
            raise
        return deployment

    def _count_load(self) -> None:
        """Count a bundle that is made ready, or raise if there were too many lately."""
        now, begun = self._machinery.clock(), self._begun
        again_ms = begun[0] + _WINDOW_MS - now if len(begun) == _MOST_LOADS else 0.0
        if again_ms > 0:
            raise OverloadedError(
                f"{_MOST_LOADS} bundles were loaded within a minute; try again in "
                f"{again_ms / 1000:.0f} s.",
                again_ms,
            )
        begun.append(now)

    async def _prepare(self, deployment: Deployment) -> None:
        """Make all of a deployment's frontier ready, in the time there is, while another serves.

        A busy host must not delay a bundle without end: its essential points are ready.
        """
        try:
            async with asyncio.timeout(_PREPARE_S):
                await deployment.warm_frontier()
        except TimeoutError:
            logger.info("the bundle serves before all of its frontier is ready")
        await self._warm_up(deployment)

    def install(self, deployment: Deployment) -> None:
        """Let a deployment serve from now on."""
        self._machinery.ledger.resolutions = frozenset(deployment.catalogue.resolutions)
        self.serving = deployment
        self._give_room()
        if self._completing is not None:
            self._completing.cancel()  # it would keep the deployment that was replaced
        self._completing = self._tasks.start(self._complete(deployment), "complete")

    def retire(self, old: Deployment) -> None:
        """Close a deployment that was replaced once the requests that began with it are gone."""
        self._tasks.start(self._retire(old), "retire")

    async def close(self) -> None:
        """Nothing serves any more."""
        if self.serving is not None:
            await self.serving.close()
            self.serving = None

    def _give_room(self) -> None:
        """Let the networks that serve occupy what may be occupied now."""
        if (serving := self.serving) is not None:
            cache = serving.cache
            cache.enlarge(capacity(self._settings, serving.engine, cache.bytes))

    async def _complete(self, deployment: Deployment) -> None:
        """Add what a first answer did not need; then look after the times while it serves."""
        completion = Completion(deployment, self._machinery, self._quiet, self._is_pause, self.turn)
        await completion.run()
        deployment.is_complete = True
        while True:
            await asyncio.sleep(_MEASURE_AGAIN_S)
            drifted = deployment.model.has_drifted
            if completion.noisy or drifted:
                await completion.measure_again(None if drifted else completion.noisy)

    async def _quiet(self) -> None:
        """Return when no request is inside; after a while in any case."""
        clock = self._machinery.clock
        patience = clock() + _PATIENCE_MS
        while self._admission.inside and clock() < patience:  # noqa: ASYNC110 (no event tells)
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _is_pause(self) -> bool:
        machinery = self._machinery
        return machinery.schedule.idle_ms(machinery.clock()) >= _PAUSE_MS

    async def _retire(self, old: Deployment) -> None:
        await old.unused()
        await old.close()
        logger.info("retired bundle %s %s", old.manifest.name, old.manifest.version)
        # A thread's last job may hold the engine for longer than the deployment lives.
        left = [weakref.ref(part) for part in (old, old.engine, old.bundle)]
        del old
        gc.unfreeze()  # the first deployment would never be found, and on a GPU fill its memory
        for _ in range(_COLLECTIONS):
            await self._machinery.builders.submit(gc.collect)
            if all(part() is None for part in left):
                gc.freeze()
                self._give_room()  # the memory of the old one's networks
                return
            await asyncio.sleep(_COLLECT_AGAIN_S)


def _sha256(path: Path) -> str | None:
    """Of a file's content; None if it is no file, or cannot be read."""
    try:
        if not path.is_file():  # a device has no end
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
