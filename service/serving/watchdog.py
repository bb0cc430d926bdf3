"""Looks after an engine that will not answer again, a host that drifts and a late event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from service.engines.base import lost
from service.errors import EngineLostError
from service.runtime.thread_pool import Workers
from service.serving.bundles.deployment import Deployment
from service.serving.tasks import Tasks

logger = logging.getLogger(__name__)

HANGS_S = 30.0
"""A batch takes milliseconds, and a hung kernel never raises."""
_DRIFT_CHECK_S = 10.0
_LAG_CHECK_S = 0.5
_ENGINE_CHECK_S = 0.5
_STOPPED_S = 5.0
"""An event loop that is this late was stopped with its process: a debugger, a paused container or
machine. Load delays it by a second at most."""


def hung(engine_thread: Workers) -> EngineLostError | None:
    """Why the engine is given up if a batch does not end; None while all is well."""
    busy_s = engine_thread.longest_s()
    if busy_s > HANGS_S:
        return EngineLostError(
            f"A batch has been running for {busy_s:.0f} s; the device hangs and the service "
            "restarts."
        )
    return None


class Watchdog:
    """Looks every now and then for as long as the service runs."""

    def __init__(self, serving: Callable[[], Deployment | None], engine_thread: Workers) -> None:
        self.loop_lag_s = 0.0
        """How late the event loop was when last looked at."""
        self._serving = serving
        self._engine_thread = engine_thread

    def start(self, tasks: Tasks, on_lost: Callable[[EngineLostError], None]) -> None:
        """Begin; `on_lost` is called at most once."""
        tasks.start(self._watch_drift(), "drift")
        tasks.start(self._watch_lag(), "lag")
        tasks.start(self._watch_engine(on_lost), "engine")

    async def _watch_drift(self) -> None:
        told = False
        while True:
            await asyncio.sleep(_DRIFT_CHECK_S)
            deployment = self._serving()
            if deployment is None:
                continue
            drifted = deployment.model.has_drifted
            if drifted and not told:
                logger.warning(
                    "this machine is %.2f times as slow as when it was measured",
                    deployment.model.drift,
                )
            told = drifted

    async def _watch_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_CHECK_S
            await asyncio.sleep(_LAG_CHECK_S)
            self.loop_lag_s = max(0.0, loop.time() - due)

    async def _watch_engine(self, on_lost: Callable[[EngineLostError], None]) -> None:
        """Only a new process can use a lost device again."""
        loop = asyncio.get_running_loop()
        excused_s = 0.0
        while True:
            due = loop.time() + _ENGINE_CHECK_S
            await asyncio.sleep(_ENGINE_CHECK_S)
            if loop.time() - due > _STOPPED_S:
                excused_s = loop.time() + HANGS_S  # the batch was stopped, too
            deployment = self._serving()
            error = lost(deployment.engine) if deployment is not None else None
            if error is None and loop.time() > excused_s:
                error = hung(self._engine_thread)
            if error is not None:
                on_lost(error)
                return
