"""`/candidate` and its `/admin` routes: a new bundle beside the one that serves."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from service.http.access.route_facts import Access, facts
from service.http.openapi import problems
from service.serving.bundles.deployment import Deployment
from service.serving.quality.verdict import Share
from service.serving.service import Service

_ADMIN = facts(Access.ADMIN)


class BundleSchema(BaseModel):
    """One of the two bundles, and what it would do for the pictures and budgets that came."""

    name: str
    version: str
    sha256: str
    frontier: list[tuple[int, float | None]] = Field(description="(resolution, accuracy)")
    expected_accuracy: float | None = Field(description="for the budgets of the sampled requests")
    best_point_ms: float | None = Field(description="mean time of its best point")


class EventSchema(BaseModel):
    """Something that happened to a bundle."""

    model_config = ConfigDict(from_attributes=True)

    at: datetime = Field(validation_alias="at_s")
    result: str
    name: str
    version: str
    why: str


class CandidateSchema(BaseModel):
    """How a new bundle compares with the one that serves."""

    stage: str = Field(description="none, shadow, canary or promoted")
    share: float = Field(description="of the clients that the candidate serves")
    serving: BundleSchema | None
    other: BundleSchema | None = Field(description="the candidate; once promoted, the old bundle")
    pictures: int = Field(description="that both bundles answered at their best points")
    agreement: float | None
    promises_kept: float | None = Field(description="of the budgets it served since it is watched")
    accuracy_by_feedback: float | None
    against: list[str] = Field(description="why it may not be promoted; empty: it may")
    events: list[EventSchema]


def candidate_router(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["candidate"])
    rollout = service.rollout

    def bundle(deployment: Deployment | None, accuracy: Share, took: Share) -> BundleSchema | None:
        if deployment is None:
            return None
        return BundleSchema(
            name=deployment.manifest.name,
            version=deployment.manifest.version,
            sha256=deployment.sha256,
            frontier=[(x.point.resolution, x.accuracy) for x in deployment.frontier],
            expected_accuracy=accuracy.value,
            best_point_ms=took.value,
        )

    @router.get("/candidate", summary="How the candidate bundle does", responses=problems(401))
    async def candidate() -> CandidateSchema:
        """How the candidate does beside the bundle that serves."""
        known = rollout.facts
        now, new = (known.expected_now, known.forward_now_ms), (known.expected, known.forward_ms)
        if rollout.watched is service.deployment:
            now, new = new, now
        return CandidateSchema(
            stage=rollout.stage,
            share=rollout.share,
            serving=bundle(service.deployment, *now),
            other=bundle(rollout.other, *new),
            pictures=int(known.agreement.whole),
            agreement=known.agreement.value,
            promises_kept=known.promises.value,
            accuracy_by_feedback=known.feedback.value,
            against=[] if rollout.other is None else rollout.against(),
            events=[EventSchema.model_validate(event) for event in rollout.events],
        )

    @router.post(
        "/admin/candidate",
        summary="Load a candidate bundle",
        responses=problems(401, 403, 409, 422, 429),
        openapi_extra=_ADMIN,
    )
    async def load(
        file: Annotated[
            str | None, Query(description="a file beside the bundle; SAN_CANDIDATE by default")
        ] = None,
        canary: Annotated[
            float, Query(ge=0, le=0.5, description="share of the clients it serves; 0: none")
        ] = 0.0,
    ) -> CandidateSchema:
        """Load a bundle beside the one that serves, and compare both on live pictures."""
        await service.load_candidate(service.candidate_path(file), canary)
        return await candidate()

    @router.post(
        "/admin/promote",
        summary="Let the candidate serve",
        responses=problems(401, 403, 404, 409),
        openapi_extra=_ADMIN,
    )
    async def promote(
        force: Annotated[bool, Query(description="whatever is known of it")] = False,
    ) -> CandidateSchema:
        """Let the candidate serve, if it is not worse; it is taken back if it turns out to be."""
        await rollout.promote(force=force)
        return await candidate()

    @router.delete(
        "/admin/candidate",
        summary="Give the candidate up",
        responses=problems(401, 403, 404),
        openapi_extra=_ADMIN,
    )
    async def drop() -> CandidateSchema:
        """Give the candidate up; once promoted, go back to the bundle it replaced."""
        await rollout.drop()
        return await candidate()

    return router
