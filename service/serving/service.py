"""A running service: starts, swaps its bundle, drains, stops. No HTTP here."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from dataclasses import asdict

from san_core.errors import SanError
from san_core.frontier import OperatingPoint
from service.errors import (
    OutdatedFeedbackError,
    ReloadError,
    RepeatedFeedbackError,
    UnknownFeedbackError,
)
from service.images.decoder import Decoder
from service.observability.ledger import Ledger
from service.observability.logs import log_request
from service.observability.tracing import make_trace
from service.processes.crew import Facts
from service.request.answer import Answer
from service.request.record import RequestRecord
from service.scheduling.admission import Admission
from service.serving.agreement import Agreement
from service.serving.choosing import Limits
from service.serving.deployment import Deployment, EngineChoice, Machinery, deploy
from service.serving.feedback import FeedbackStore, Judgement, Remembered
from service.serving.pipeline import Observe, Pipeline, Pixels
from service.serving.warm_up import rehearse
from service.settings import MEGA, Settings

logger = logging.getLogger(__name__)

_DRIFT_CHECK_S = 10.0
_LAG_CHECK_S = 0.5
_PREPARE_S = 20.0


class Service:
    """Everything that serves, behind whatever transport."""

    def __init__(self, machinery: Machinery, choose_engine: EngineChoice) -> None:
        settings: Settings = machinery.settings
        self.settings = settings
        self.machinery = machinery
        self.clock = machinery.clock
        self.crew = machinery.crew
        self.ledger: Ledger = machinery.ledger
        self.admission = Admission(
            max_requests=settings.max_inflight, max_bytes=settings.max_inflight_megabytes * MEGA
        )
        self.decoder = Decoder(
            machinery.decoders,
            machinery.clock,
            max_pixels=settings.max_pixels,
            max_frames=settings.max_frames,
        )
        self.feedback = FeedbackStore(settings.feedback_entries)
        self.pipeline = self._make_pipeline(self.admission, self._observe)
        self.agreement = Agreement(
            self.pipeline,
            self.decoder,
            self.admission,
            machinery.load,
            self.ledger,
            settings,
            machinery.clock,
        )
        self.on_fatal: Callable[[BaseException], None] = lambda _: None
        """Called if the first bundle cannot be served: nothing is left to wait for."""
        self.leaving = False
        """Told to stop: no longer ready, though still serving while the grace lasts."""
        self.failure: str | None = None
        self.loop_lag_s = 0.0
        """How late the event loop was when last looked at."""
        self._choose_engine = choose_engine
        self._trace = make_trace(machinery.clock)
        self._reloading = asyncio.Lock()
        self._settled = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def deployment(self) -> Deployment | None:
        """What serves now."""
        return self.pipeline.deployment

    @property
    def is_ready(self) -> bool:
        """Bundle loaded, frontier measured on this host, by every worker; not on the way out."""
        return self.admission.ready and self.crew.all_ready and not self.is_leaving

    @property
    def is_leaving(self) -> bool:
        """On the way out."""
        return self.leaving or self.admission.draining

    async def start(self) -> None:
        """Begin in the background: liveness answers at once, readiness when it is true.

        Where other workers serve already, do not listen before there is something to say.
        """
        self.crew.on("feedback", self._feedback_for_another)
        self.crew.on("reload", self._reload_with_another)
        await self.crew.listen()
        self._spawn(self._first_deployment(), "deploy")
        self._spawn(self.agreement.watch(), "agreement")
        self._spawn(self._watch_drift(), "drift")
        self._spawn(self._watch_lag(), "lag")
        if self.crew.successor:
            await self._settled.wait()

    async def judge(
        self, request_id: str, truth: frozenset[int], model: tuple[str, str]
    ) -> Judgement:
        """Compare an answer with the truth, whichever worker gave it, and count it there.

        The truth is in indices of the classes of `model`: a bundle's name and version.
        """
        try:
            judged = self.feedback.judge(request_id, truth, model)
        except UnknownFeedbackError:
            facts = {"request_id": request_id, "truth": sorted(truth), "model": model}
            for answer in await self.crew.ask("feedback", facts):
                if answer and answer["repeated"]:
                    raise RepeatedFeedbackError(answer["repeated"]) from None
                if answer and answer["outdated"]:
                    raise OutdatedFeedbackError(answer["outdated"]) from None
                if answer and answer["judged"]:
                    return Judgement(**answer["judged"])
            raise
        self.ledger.observe_feedback(
            judged.resolution,
            judged.expected_accuracy,
            first=judged.correct,
            top5=judged.in_top5,
        )
        return judged

    async def _feedback_for_another(self, facts: Facts) -> Facts:
        answer: Facts = {"judged": None, "repeated": None, "outdated": None}
        request_id, truth, model = facts["request_id"], facts["truth"], facts["model"]
        if request_id not in self.feedback:
            return answer
        try:
            judged = await self.judge(request_id, frozenset(truth), (model[0], model[1]))
        except RepeatedFeedbackError as error:
            return answer | {"repeated": str(error)}
        except OutdatedFeedbackError as error:
            return answer | {"outdated": str(error)}
        return answer | {"judged": asdict(judged)}

    async def reload_everywhere(self) -> None:
        """Reload here and, if that went well, in every other worker."""
        await self.reload()
        for answer in await self.crew.ask("reload", patience_s=None):
            if answer is None or answer["problem"]:
                raise ReloadError(
                    "Swapped here, but not in every worker: "
                    + (answer["problem"] if answer else "one does not answer.")
                )

    async def _reload_with_another(self, _: Facts) -> Facts:
        try:
            await self.reload()
        except ReloadError as error:
            return {"problem": str(error)}
        return {"problem": None}

    async def reload(self) -> Deployment:
        """Read the bundle again and swap it in without dropping a request.

        The old one serves until the new one has its frontier ready; a broken one leaves it serving.
        """
        await self._settled.wait()  # the first bundle may still be on its way
        async with self._reloading:
            if self.is_leaving:
                raise ReloadError("The service is shutting down; the old bundle stays.")
            old = self.pipeline.deployment
            try:
                async with self.crew.turn():
                    new = await deploy(self.machinery, self.settings.bundle, self._choose_engine)
                    await self._prepare(new)
            except Exception as error:
                self.ledger.reloads["failed"] += 1
                logger.exception("reload failed; the old bundle goes on serving")
                sentence = str(error) if isinstance(error, SanError) else "The log says why."
                raise ReloadError(f"The new bundle cannot be served. {sentence}") from error
            self._install(new)
            self.ledger.reloads["swapped"] += 1
            if old is not None:
                self._spawn(self._retire(old), "retire")
            return new

    def warm(self, deployment: Deployment, point: OperatingPoint) -> None:
        """Make a point ready in the background."""
        self._spawn(deployment.cache.warm([point]), f"warm {point}")

    def drain(self) -> None:
        """Say no to new requests; those inside finish."""
        if not self.admission.draining:
            logger.info("draining: %d requests inside", self.admission.inside)
        self.admission.draining = True
        self._settled.set()

    async def stop(self) -> None:
        """Wait for nobody; let go of everything."""
        self.admission.draining = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.pipeline.deployment is not None:
            await self.pipeline.deployment.close()
            self.pipeline.deployment = None
        machinery = self.machinery
        for workers in (
            machinery.decoders,
            machinery.loader,
            machinery.builders,
            machinery.engine_thread,
        ):
            await asyncio.to_thread(workers.close)
        await self.crew.close()

    async def _first_deployment(self) -> None:
        try:
            async with self.crew.turn():
                deployment = await deploy(self.machinery, self.settings.bundle, self._choose_engine)
                await self._prepare(deployment)
        except Exception as error:
            self.failure = str(error)
            self._settled.set()
            if not isinstance(error, SanError):
                logger.exception("the bundle cannot be served")
            self.on_fatal(error)
            return
        self._install(deployment)
        self.admission.ready = True
        self.crew.mark_ready()
        self._settled.set()
        # What is loaded by now lives as long as the process: the collector need not look again.
        gc.collect()
        gc.freeze()
        logger.info("ready")

    def _make_pipeline(self, admission: Admission, observe: Observe) -> Pipeline:
        settings = self.settings
        limits = Limits(settings.patience_ms, settings.max_resolution, settings.max_batch)
        return Pipeline(admission, self.machinery.load, self.decoder, self.clock, limits, observe)

    async def _rehearse(self, deployment: Deployment) -> None:
        door = Admission(max_requests=1, max_bytes=self.settings.max_body_bytes)
        door.ready = True
        pipeline = self._make_pipeline(door, lambda *_: None)
        pipeline.deployment = deployment
        try:
            await rehearse(pipeline, self.clock)
        except SanError as error:  # limits so tight that no photograph passes
            logger.info("no rehearsal: %s", error)

    async def _prepare(self, deployment: Deployment) -> None:
        """Make all of a deployment's frontier ready, in the time there is.

        Who sends traffic to a service that is ready does not want to share the cores with builds.
        But a bundle must not wait for ever on a busy host: it always has a point that is ready.
        """
        try:
            try:
                async with asyncio.timeout(_PREPARE_S):
                    await deployment.warm_frontier()
            except TimeoutError:
                logger.info("the bundle serves before all of its frontier is ready")
            await self._rehearse(deployment)
        except BaseException:
            await deployment.close()
            raise

    def _install(self, deployment: Deployment) -> None:
        self.ledger.resolutions = frozenset(deployment.catalogue.resolutions)
        self.pipeline.deployment = deployment
        self._spawn(deployment.warm_frontier(), "warm up")

    async def _retire(self, old: Deployment) -> None:
        """Close a replaced deployment once the requests that began with it are gone."""
        await old.unused()
        await old.close()
        logger.info("retired bundle %s %s", old.manifest.name, old.manifest.version)

    async def _watch_drift(self) -> None:
        told = False
        while True:
            await asyncio.sleep(_DRIFT_CHECK_S)
            deployment = self.pipeline.deployment
            if deployment is None:
                continue
            drifted = deployment.model.has_drifted(self.clock())
            if drifted and not told:
                logger.warning(
                    "this host runs at %.2f times the latencies it was measured with",
                    deployment.model.drift(self.clock()),
                )
            told = drifted

    async def _watch_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_CHECK_S
            await asyncio.sleep(_LAG_CHECK_S)
            self.loop_lag_s = max(0.0, loop.time() - due)

    def _observe(
        self, record: RequestRecord, answer: Answer | None, image: bytes | Pixels | None
    ) -> None:
        self.ledger.observe(record)
        if answer is not None and record.point is not None:
            best = tuple(p.index for p in answer.predictions[:5])
            self.feedback.remember(
                record.request_id,
                Remembered(
                    record.point.resolution,
                    (record.model, record.model_version),
                    best,
                    record.expected_accuracy,
                ),
            )
            if isinstance(image, bytes):
                self.agreement.offer(record, image, best[0])
        if self.settings.access_log:
            log_request(record)
        if self._trace is not None:
            self._trace(record)

    def _spawn(self, work: object, name: str) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("%s failed", task.get_name(), exc_info=error)
