"""A running service: starts, swaps its bundle, drains, stops. No HTTP here."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from san_core.bundle import DEFAULT_BUNDLE
from san_core.errors import SanError
from san_core.frontier import OperatingPoint
from service.engines.build_limits import MOST_WARMING
from service.engines.openvino.disk_cache import user_cache
from service.errors import (
    EngineLostError,
    OverloadedError,
    ParameterError,
    ReloadError,
    SettingsError,
)
from service.fleet.headroom import Headroom
from service.images.decoder import DecodeLimits, Decoder
from service.images.helper_pool import HelperPool
from service.observability.ledger import Ledger
from service.observability.logs import log_request
from service.observability.tracing import make_trace
from service.replay.recording import Recorder
from service.request.answer import Answer, image_ids
from service.request.request import Request
from service.runtime.cgroups import cpu_quota
from service.runtime.cores import available_cores
from service.runtime.turns import turn
from service.scheduling.admission import Admission
from service.serving.answers import AnswerCache
from service.serving.bundles.completion import Completion
from service.serving.bundles.deploying import deploy
from service.serving.bundles.deployment import Deployment, EngineChoice, Machinery
from service.serving.bundles.room import capacity, room_beside
from service.serving.choosing import Limits
from service.serving.headroom import HeadroomReport
from service.serving.pipeline import Observe, Pipeline, Received, Route
from service.serving.quality.agreement import Agreement
from service.serving.quality.feedback import FeedbackStore, Judgement, Remembered
from service.serving.quality.idle_sampler import Sample
from service.serving.quality.rerun import make_rerun
from service.serving.quality.rollout import Parts, Rollout
from service.serving.quality.verdict import Bounds
from service.serving.warm_up import warm_up
from service.serving.watchdog import verdict
from service.settings import MEGA, Settings

logger = logging.getLogger(__name__)

_DRIFT_CHECK_S = 10.0
_LAG_CHECK_S = 0.5
_ENGINE_CHECK_S = 0.5
_PREPARE_S = 20.0
_MEASURE_AGAIN_S = 30.0
"""Between looks at whether times must be taken again."""
_PATIENCE_MS, _LOOK_AGAIN_S = 1000.0, 0.02
"""How long what is built behind requests waits for there to be none, and how often it looks."""
_PAUSE_MS = 2000.0
"""After so long without a request this host's times are taken: a run cannot be interrupted, and the
largest batch takes up to 0.1 s, so that between two requests of steady traffic it would make the
second one late."""
_WARM_AGAIN_MS = 5000.0
_COLLECTIONS, _COLLECT_AGAIN_S = 10, 0.5
"""How often the collector looks for a deployment that was replaced."""
_BESIDE = 4
"""A candidate gets one part in so many of the memory for networks."""


class Service:
    """Everything that serves, behind whatever transport."""

    def __init__(self, machinery: Machinery, choose_engine: EngineChoice) -> None:
        settings: Settings = machinery.settings
        self.settings = settings
        self.machinery = machinery
        self.clock = machinery.clock
        self.ledger: Ledger = machinery.ledger
        self.admission = Admission(
            max_requests=settings.max_inflight, max_bytes=settings.max_inflight_megabytes * MEGA
        )
        limits = DecodeLimits(
            settings.formats,
            settings.max_pixels,
            settings.max_decode_ms,
            settings.max_decode_megabytes * MEGA,
        )
        self.helpers = HelperPool(
            settings.decode_helpers or max(2, available_cores() // settings.workers // 2),
            memory_bytes=limits.max_bytes,
            formats=limits.formats,
            max_pixels=limits.max_pixels,
            clock=machinery.clock,
        )
        self.decoder = Decoder(
            machinery.decoders, machinery.large_decoder, self.helpers, machinery.clock, limits
        )
        self.feedback = FeedbackStore(settings.feedback_entries)
        self.answers = self._make_answer_cache()
        rerun = make_rerun(self.decoder, machinery.clock)
        self.rollout = Rollout(
            Parts(self._deploy, self._install, self._retire_later, lambda: self.deployment),
            rerun,
            self.decoder,
            self.admission,
            self.ledger,
            machinery.clock,
            fraction=settings.candidate_fraction,
            bounds=Bounds(agreement=settings.candidate_agreement),
            watch_ms=1000 * settings.rollback_s,
        )
        self.pipeline = self._make_pipeline(
            self.admission, self._observe, self.rollout.deployment_for, self.answers
        )
        self.agreement = Agreement(
            lambda: self.deployment,
            rerun,
            self.admission,
            self.ledger,
            settings.agreement_fraction,
        )
        self._headroom = HeadroomReport(self.admission, machinery.clock)
        self.on_fatal: Callable[[BaseException], None] = lambda _: None
        """Called if the first bundle cannot be served: nothing is left to wait for."""
        self.on_ready: Callable[[], None] = lambda: logger.info("ready")
        """Called once, when requests are taken."""
        self.leaving = False
        """Told to stop: no longer ready, though still serving while the grace lasts."""
        self.failure: str | None = None
        self.lost: EngineLostError | None = None
        """Why the engine was given up; the process ends, to be replaced."""
        self.loop_lag_s = 0.0
        """How late the event loop was when last looked at."""
        self._choose_engine = choose_engine
        self._trace = make_trace(machinery.clock)
        self._recorder = Recorder(settings.record) if settings.record is not None else None
        self._reloading = asyncio.Lock()
        self._next_reload: asyncio.Task[Deployment] | None = None
        """Waits for its turn; calls made meanwhile get its result."""
        self._settled = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._completing: asyncio.Task[None] | None = None
        """Completes the deployment that serves."""

    @property
    def deployment(self) -> Deployment | None:
        """What serves now."""
        return self.pipeline.deployment

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

    def _warn_of_quota(self) -> None:
        quota = cpu_quota()
        if quota is not None and quota < 1:
            logger.warning(
                "this container has %.2f of a core: the kernel stops the process for the rest of "
                "each period once its share is used up, so latency has two modes and budgets below "
                "0.1 s are a lottery; give it whole cores",
                quota,
            )

    async def start(self) -> None:
        """Begin in the background: liveness answers at once, readiness when it is true."""
        self._warn_of_quota()
        self._spawn(self._first_deployment(), "deploy")
        self._spawn(self.agreement.watch(), "agreement")
        self._spawn(self.rollout.watch(), "candidate")
        self._spawn(self.rollout.keep_watch(), "rollback")
        self._spawn(self._watch_drift(), "drift")
        self._spawn(self._watch_lag(), "lag")
        self._spawn(self._watch_engine(), "engine")

    async def until_ready(self) -> None:
        """Wait until the first bundle serves; raise if it cannot."""
        await self._settled.wait()
        if self.failure is not None:
            raise SettingsError(self.failure)

    def judge(self, request_id: str, truth: frozenset[int], model: tuple[str, str]) -> Judgement:
        """Compare an answer with the truth, and count it.

        The truth is in indices of the classes of `model`: a bundle's name and version.
        """
        judged = self.feedback.judge(request_id, truth, model)
        self.ledger.observe_feedback(
            judged.resolution,
            judged.expected_accuracy,
            first=judged.correct,
            top5=judged.in_top5,
        )
        self.rollout.observe_feedback(
            judged.bundle, right=judged.correct, expected=judged.expected_accuracy
        )
        return judged

    def answered_by(self, request_id: str) -> Deployment | None:
        """The bundle that answered a request, if it is still there; else the one that serves."""
        bundle = self.feedback.bundle_of(request_id)
        other = self.rollout.other
        return other if other is not None and other.sha256 == bundle else self.deployment

    async def reload(self) -> Deployment:
        """Read the bundle again and swap it in without dropping a request.

        The old one serves until the new one has its frontier ready; a broken one leaves it serving.
        However many ask while one is under way, one more follows it.
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
            old = self.pipeline.deployment
            try:
                async with turn(self.settings.cache_dir or user_cache()):
                    new = await self._deploy(self.settings.bundle)
            except Exception as error:
                self.ledger.reloads["failed"] += 1
                logger.exception("reload failed; the old bundle goes on serving")
                sentence = str(error) if isinstance(error, SanError) else "The log says why."
                raise ReloadError(f"The new bundle cannot be served. {sentence}") from error
            self._install(new)
            self.ledger.reloads["swapped"] += 1
            self.rollout.note("swapped", new)
            self.rollout.replaced()
            if old is not None:
                self._retire_later(old)
            return new

    def candidate_path(self, file: str | None) -> Path:
        """The file that a candidate's name means: one beside a bundle that the operator named."""
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
            async with turn(self.settings.cache_dir or user_cache()):
                await self.rollout.load(path, canary)
        except ReloadError:
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
        if self.rollout.other is not None:
            await self.rollout.other.close()
        if self._recorder is not None:
            self._recorder.close()
        machinery = self.machinery
        for workers in (
            machinery.decoders,
            machinery.large_decoder,
            machinery.loader,
            machinery.builders,
            machinery.engine_thread,
        ):
            await asyncio.to_thread(workers.close)
        await asyncio.to_thread(self.helpers.close)
        gc.unfreeze()  # else nothing of this service would ever be freed if the process lives on

    async def _first_deployment(self) -> None:
        try:
            async with turn(self.settings.cache_dir or user_cache()):
                deployment = await deploy(self.machinery, self.settings.bundle, self._choose_engine)
                await self._warm_up(deployment)
        except Exception as error:
            self.failure = str(error)
            self._settled.set()
            if not isinstance(error, SanError):
                logger.exception("the bundle cannot be served")
            self.on_fatal(error)
            return
        self._install(deployment)
        self.admission.ready = True
        self._settled.set()
        self.helpers.warm()
        # What is loaded by now lives as long as the process: the collector need not look again.
        gc.collect()
        gc.freeze()
        self.on_ready()
        self.rollout.note("served", deployment)
        if self.settings.candidate is not None:
            await self.load_candidate(self.settings.candidate, self.settings.canary)

    def _make_pipeline(
        self,
        admission: Admission,
        observe: Observe,
        route: Route = lambda serving, _: serving,
        answers: AnswerCache | None = None,
    ) -> Pipeline:
        settings = self.settings
        limits = Limits(settings.patience_ms, settings.max_resolution)
        return Pipeline(
            admission,
            self.machinery.schedule,
            self.decoder,
            self.clock,
            limits,
            observe,
            route,
            answers,
        )

    def _make_answer_cache(self) -> AnswerCache | None:
        settings = self.settings
        if not settings.answer_cache_megabytes:
            return None
        return AnswerCache(
            settings.answer_cache_megabytes * MEGA,
            settings.answer_cache_ttl_s,
            lambda: self.clock() / 1000,
        )

    async def _deploy(self, path: Path | None, beside: bool = False) -> Deployment:
        """Make a bundle ready; one beside another has a part of its memory."""
        machinery, most = self.machinery, self.settings.cache_megabytes
        if beside:
            most //= _BESIDE
        if self.deployment is not None:
            room = await room_beside(self.deployment, path or DEFAULT_BUNDLE)
            most = most if room is None else min(most, room // MEGA)
        if most < self.settings.cache_megabytes:
            less = {"cache_megabytes": max(1, most)}
            machinery = replace(machinery, settings=self.settings.model_copy(update=less))
        deployment = await deploy(machinery, path, self._choose_engine)
        await self._prepare(deployment)
        return deployment

    async def _warm_up(self, deployment: Deployment) -> None:
        admission = Admission(max_requests=1, max_bytes=self.settings.max_body_bytes)
        admission.ready = True
        pipeline = self._make_pipeline(admission, lambda *_: None)
        pipeline.deployment = deployment
        try:
            await warm_up(pipeline, self.clock)
        except SanError as error:  # limits so tight that no photograph passes
            logger.info("no warm-up: %s", error)

    async def _prepare(self, deployment: Deployment) -> None:
        """Make all of a deployment's frontier ready, in the time there is, while another serves.

        A busy host must not delay a bundle without end: its essential points are ready.
        """
        try:
            try:
                async with asyncio.timeout(_PREPARE_S):
                    await deployment.warm_frontier()
            except TimeoutError:
                logger.info("the bundle serves before all of its frontier is ready")
            await self._warm_up(deployment)
        except BaseException:
            await deployment.close()
            raise

    def _install(self, deployment: Deployment) -> None:
        self.ledger.resolutions = frozenset(deployment.catalogue.resolutions)
        self.pipeline.deployment = deployment
        self._give_room()
        if self._completing is not None:
            self._completing.cancel()  # it would keep the deployment that was replaced
        self._completing = self._spawn(self._complete(deployment), "complete")

    def _give_room(self) -> None:
        """Let the networks that serve occupy what may be occupied now."""
        if (serving := self.deployment) is not None:
            cache = serving.cache
            cache.enlarge(capacity(self.settings, serving.engine, cache.bytes))

    async def _complete(self, deployment: Deployment) -> None:
        """Add what a first answer did not need; then look after the times while it serves."""
        turns = partial(turn, self.settings.cache_dir or user_cache())
        completion = Completion(deployment, self.machinery, self._quiet, self._is_pause, turns)
        await completion.run()
        deployment.is_complete = True
        while True:
            await asyncio.sleep(_MEASURE_AGAIN_S)
            drifted = deployment.model.has_drifted
            if completion.noisy or drifted:
                await completion.measure_again(None if drifted else completion.noisy)

    async def _quiet(self) -> None:
        """Return when no request is inside; after a while in any case."""
        patience = self.clock() + _PATIENCE_MS
        while self.admission.inside and self.clock() < patience:  # noqa: ASYNC110 (no event tells)
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _is_pause(self) -> bool:
        return self.machinery.schedule.idle_ms(self.clock()) >= _PAUSE_MS

    def _retire_later(self, old: Deployment) -> None:
        self._spawn(self._retire(old), "retire")

    async def _retire(self, old: Deployment) -> None:
        """Close a replaced deployment once the requests that began with it are gone."""
        await old.unused()
        await old.close()
        logger.info("retired bundle %s %s", old.manifest.name, old.manifest.version)
        # A thread's last job may hold the engine for longer than the deployment lives.
        left = [weakref.ref(part) for part in (old, old.engine, old.bundle)]
        del old
        gc.unfreeze()  # the first deployment would never be found, and on a GPU fill its memory
        for _ in range(_COLLECTIONS):
            await self.machinery.builders.submit(gc.collect)
            if all(part() is None for part in left):
                gc.freeze()
                self._give_room()  # the memory of the old one's networks
                return
            await asyncio.sleep(_COLLECT_AGAIN_S)  # a thread may still hold its last job

    async def _watch_drift(self) -> None:
        told = False
        while True:
            await asyncio.sleep(_DRIFT_CHECK_S)
            deployment = self.pipeline.deployment
            if deployment is None:
                continue
            drifted = deployment.model.has_drifted
            if drifted and not told:
                logger.warning(
                    "this host runs at %.2f times the latencies it was measured with",
                    deployment.model.drift,
                )
            told = drifted

    async def _watch_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_CHECK_S
            await asyncio.sleep(_LAG_CHECK_S)
            self.loop_lag_s = max(0.0, loop.time() - due)

    async def _watch_engine(self) -> None:
        """Give up an engine that is lost: only a new process can use its device again."""
        while self.lost is None:
            await asyncio.sleep(_ENGINE_CHECK_S)
            deployment = self.pipeline.deployment
            engine = deployment.engine if deployment is not None else None
            self.lost = verdict(engine, self.machinery.engine_thread)
        logger.critical("%s", self.lost)
        self.admission.ready = False
        self.failure = str(self.lost)
        self.on_fatal(self.lost)

    def _observe(self, record: Request, answer: Answer | None, image: Received | None) -> None:
        self.ledger.observe(record)
        self.rollout.observe(record)
        if answer is not None and record.point is not None:
            names = image_ids(record.request_id, len(answer.results))
            for name, result in zip(names, answer.results, strict=True):
                self.feedback.remember(
                    name,
                    Remembered(
                        record.point.resolution,
                        (record.model, record.model_version),
                        tuple(p.index for p in result.predictions[:5]),
                        record.expected_accuracy,
                        bundle=record.bundle,
                    ),
                )
            if isinstance(image, bytes):
                sample = Sample(
                    image,
                    record.point.resolution,
                    answer.predictions[0].index,
                    record.bundle,
                    record.terms.budget_ms,
                )
                self.agreement.offer(sample)
                if self.rollout.other is not None:
                    self.rollout.offer(sample)
        if self._recorder is not None:
            self._recorder(record)
        if self.settings.access_log:
            log_request(record)
        if self._trace is not None:
            self._trace(record)

    def _spawn(self, work: object, name: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.error("%s failed", task.get_name(), exc_info=error)
