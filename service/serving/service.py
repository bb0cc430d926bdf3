"""A running service: starts, swaps its bundle, drains, stops. No HTTP here."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from pathlib import Path

from san_core.errors import SanError
from san_core.frontier import OperatingPoint
from service.engines.build_limits import MOST_WARMING
from service.errors import (
    DrainingError,
    EngineLostError,
    NotReadyError,
    OverloadedError,
    ParameterError,
    ReloadError,
    SettingsError,
)
from service.fleet.headroom import Headroom
from service.images.helper_pool import HelperPool
from service.runtime.cgroups import cpu_quota
from service.scheduling.admission import Admission
from service.serving.answers import AnswerCache
from service.serving.bundles.deployment import Deployment, Machinery
from service.serving.bundles.swapping import Bundles
from service.serving.headroom import HeadroomReport
from service.serving.observing import Observer
from service.serving.pipeline import Pipeline
from service.serving.quality.agreement import Agreement
from service.serving.quality.feedback import FeedbackStore
from service.serving.quality.rollout import Rollout
from service.serving.tasks import Tasks
from service.serving.watchdog import Watchdog

logger = logging.getLogger(__name__)

_WARM_AGAIN_MS = 5000.0


class Service:
    """Everything that serves, behind whatever transport."""

    def __init__(
        self,
        machinery: Machinery,
        *,
        admission: Admission,
        helpers: HelperPool,
        tasks: Tasks,
        bundles: Bundles,
        rollout: Rollout,
        agreement: Agreement,
        feedback: FeedbackStore,
        answers: AnswerCache | None,
        observer: Observer,
        pipeline: Pipeline,
    ) -> None:
        """Take over parts that `service.app` put together."""
        self.machinery = machinery
        self.settings = machinery.settings
        self.clock = machinery.clock
        self.ledger = machinery.ledger
        self.admission = admission
        self.bundles = bundles
        self.rollout = rollout
        self.feedback = feedback
        self.answers = answers
        self.observer = observer
        self.pipeline = pipeline
        self.watchdog = Watchdog(lambda: bundles.serving, machinery.engine_thread)
        self.on_fatal: Callable[[BaseException], None] = lambda _: None
        """Called if the first bundle cannot be served: nothing is left to wait for."""
        self.on_ready: Callable[[], None] = lambda: logger.info("ready")
        """Called once, when requests are taken."""
        self.leaving = False
        """Told to stop: no longer ready, though still serving while the grace lasts."""
        self.failure: str | None = None
        self.lost: EngineLostError | None = None
        """Why the engine was given up; the process ends, to be replaced."""
        self._helpers = helpers
        self._agreement = agreement
        self._headroom = HeadroomReport(admission, machinery.clock)
        self._reloading = asyncio.Lock()
        self._next_reload: asyncio.Task[Deployment] | None = None
        """Waits for its turn; calls made meanwhile get its result."""
        self._settled = asyncio.Event()
        self._tasks = tasks
        admission.not_ready = self.not_ready

    @property
    def deployment(self) -> Deployment | None:
        """What serves now."""
        return self.bundles.serving

    def deployed(self) -> Deployment:
        """What serves now; raise if nothing does."""
        if self.deployment is None:
            raise self.not_ready()
        return self.deployment

    def not_ready(self) -> NotReadyError | DrainingError:
        """Why it is not ready, and how far it is on its way."""
        if self.is_leaving:
            return DrainingError("The service is shutting down.")
        if self.failure is not None:
            return NotReadyError(self.failure)
        steps = self.bundles.first_steps
        return NotReadyError(
            f"The service is starting: {steps.doing}.", progress=steps.progress._asdict()
        )

    def headroom(self) -> Headroom | None:
        """What a request that came now could be promised; None while nothing can be served."""
        return self._headroom.look(self.deployment)

    @property
    def is_ready(self) -> bool:
        """A bundle is loaded and measured on this host, and the service is not leaving."""
        return self.admission.ready and not self.is_leaving

    @property
    def is_leaving(self) -> bool:
        """On the way out."""
        return self.leaving or self.admission.draining

    async def start(self) -> None:
        """Begin in the background: liveness answers at once, readiness when it is true."""
        _warn_of_quota()
        self._tasks.start(self._first_deployment(), "deploy")
        self._tasks.start(self._agreement.watch(), "agreement")
        self._tasks.start(self.rollout.watch(), "candidate")
        self._tasks.start(self.rollout.keep_watch(), "rollback")
        self.watchdog.start(self._tasks, self._give_up)

    async def until_ready(self) -> None:
        """Wait until the first bundle serves; raise if it cannot."""
        await self._settled.wait()
        if self.failure is not None:
            raise SettingsError(self.failure)

    def answered_by(self, request_id: str) -> Deployment:
        """The bundle that answered a request, if it is still there; else the one that serves."""
        bundle = self.feedback.bundle_of(request_id)
        other = self.rollout.other
        return other if other is not None and other.sha256 == bundle else self.deployed()

    async def reload(self) -> Deployment:
        """Read the bundle again and swap it in without dropping a request.

        The old one serves until the new one has its frontier ready; a broken one leaves it serving.
        Nothing is built if the file holds what serves. However many ask while one is under way, one
        more follows it.
        """
        if self._next_reload is None:
            self._next_reload = asyncio.create_task(self._reload(), name="reload")
            self._next_reload.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._next_reload)

    async def _reload(self) -> Deployment:
        await self._settled.wait()  # the first bundle may still be on its way
        async with self._reloading:
            self._next_reload = None  # a later call may mean a newer file
            if self.is_leaving:
                raise ReloadError("The service is shutting down; the old bundle stays.")
            old = self.deployment
            if old is not None and await self.bundles.is_unchanged():
                self.ledger.reloads["unchanged"] += 1
                return old
            try:
                async with self.bundles.turn():
                    new = await self.bundles.make(self.settings.bundle)
            except OverloadedError as error:
                logger.warning("no reload: %s", error)
                raise
            except Exception as error:
                self.ledger.reloads["failed"] += 1
                logger.exception("reload failed; the old bundle goes on serving")
                sentence = str(error) if isinstance(error, SanError) else "The log says why."
                raise ReloadError(f"The new bundle cannot be served. {sentence}") from error
            self.bundles.install(new)
            self.ledger.reloads["swapped"] += 1
            self.rollout.note("swapped", new)
            self.rollout.replaced()
            if old is not None:
                self.bundles.retire(old)
            return new

    def candidate_path(self, file: str | None) -> Path:
        """The candidate's file, in the folder of a bundle that the operator named."""
        named = self.settings.candidate or self.settings.bundle
        if file is None:
            if self.settings.candidate is None:
                raise ParameterError("Name the candidate's file.", "file")
            return self.settings.candidate
        if named is None or Path(file).name != file:
            raise ParameterError(
                "A candidate is the name of a file in the folder of SAN_BUNDLE or SAN_CANDIDATE.",
                "file",
            )
        return named.parent / file

    async def load_candidate(self, path: Path, canary: float) -> None:
        """Load a second bundle beside the one that serves."""
        await self._settled.wait()
        try:
            async with self.bundles.turn():
                await self.rollout.load(path, canary)
        except (ReloadError, OverloadedError):
            raise
        except SanError as error:
            raise ReloadError(f"The candidate cannot be served. {error}") from error

    def warm(self, deployment: Deployment, point: OperatingPoint) -> None:
        """Make a point ready in the background; few wait at a time."""
        cache = deployment.cache
        if not cache.is_building(point) and cache.guest_builds >= MOST_WARMING:
            raise OverloadedError(
                f"{cache.guest_builds} points are being made ready; wait until some are.",
                _WARM_AGAIN_MS,
            )
        self._tasks.start(deployment.cache.warm([point]), f"warm {point}")

    def drain(self) -> None:
        """Say no to new requests; those inside finish."""
        if not self.admission.draining:
            logger.info("draining: %d requests inside", self.admission.inside)
        self.admission.draining = True
        self._settled.set()

    async def stop(self) -> None:
        """Stop at once, and release everything."""
        self.admission.draining = True
        await self._tasks.end()
        await self.bundles.close()
        if self.rollout.other is not None:
            await self.rollout.other.close()
        self.observer.close()
        machinery = self.machinery
        for workers in (
            machinery.decoders,
            machinery.large_decoder,
            machinery.loader,
            machinery.builders,
            machinery.engine_thread,
        ):
            await asyncio.to_thread(workers.close)
        await asyncio.to_thread(self._helpers.close)
        gc.unfreeze()  # else nothing of this service would ever be freed if the process lives on

    async def _first_deployment(self) -> None:
        try:
            deployment = await self.bundles.make_first()
        except Exception as error:
            self.failure = str(error)
            self._settled.set()
            if not isinstance(error, SanError):
                logger.exception("the bundle cannot be served")
            self.on_fatal(error)
            return
        self.bundles.install(deployment)
        self.admission.ready = True
        self._settled.set()
        self._helpers.warm()
        # What is loaded by now lives as long as the process: the collector need not look again.
        gc.collect()
        gc.freeze()
        self.rollout.note("served", deployment)
        self.on_ready()
        if self.settings.candidate is not None:
            try:
                await self.load_candidate(self.settings.candidate, self.settings.canary)
            except ReloadError as error:  # the bundle serves all the same
                logger.error("%s", error)

    def _give_up(self, error: EngineLostError) -> None:
        """Only a new process can use the engine's device again."""
        logger.critical("%s", error)
        self.lost = error
        self.admission.ready = False
        self.failure = str(error)
        self.on_fatal(error)


def _warn_of_quota() -> None:
    quota = cpu_quota()
    if quota is not None and quota < 1:
        logger.warning(
            "this container has %.2f of a core: the kernel stops the process for the rest of "
            "each period once its share is used up, so latency has two modes and budgets below "
            "0.1 s are a lottery; give it whole cores",
            quota,
        )
