"""`/resolutions`: what the policy chooses among, and the weight cache."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from san_core.preprocessing import ImageHeader
from san_core.resolution import MAX_RESOLUTION, MIN_RESOLUTION, provenance
from service.engines.weight_cache import WeightCache
from service.errors import NotCachedError, NotReadyError, ParameterError
from service.http.openapi import problems
from service.http.schemas import (
    AccuracySchema,
    CachedNetworkSchema,
    CacheSchema,
    LatencySchema,
    OperatingPointSchema,
    ResolutionsSchema,
    WarmSchema,
)
from service.latency.catalogue import Listing
from service.latency.model import decode_work
from service.processes.crew import Facts
from service.serving.deployment import Deployment
from service.serving.service import Service

_TYPICAL = ImageHeader("JPEG", 500, 375, 1)
_TYPICAL_BYTES = 50_000

Resolution = Annotated[int, Path(ge=MIN_RESOLUTION, le=MAX_RESOLUTION)]


def describe(service: Service, deployment: Deployment, listing: Listing) -> OperatingPointSchema:
    """One operating point as it stands now."""
    model, now, q = deployment.model, service.clock(), service.settings.quantile
    point, shape = listing.point, listing.shape
    sizes = sorted({1, service.settings.max_batch})
    latency = {
        str(n): LatencySchema(
            p50=round(model.forward_ms(shape, n, 0.5, now), 3),
            p95=round(model.forward_ms(shape, n, 0.95, now), 3),
            p99=round(model.forward_ms(shape, n, 0.99, now), 3),
        )
        for n in sizes
    }
    at_least = deployment.preprocessing.least_side(point.resolution)
    work = decode_work(_TYPICAL, _TYPICAL_BYTES, at_least)
    smallest = (
        model.decode_ms(work, q, now, calm=True)
        + model.forward_ms(shape, 1, q, now, calm=True)
        + model.overhead_ms(q, now, calm=True)
        + model.excess_ms(q, now, calm=True)
    )
    cost = deployment.costs[shape]
    measured = listing.measured
    return OperatingPointSchema(
        resolution=point.resolution,
        mode=point.mode,
        precision=point.precision,
        provenance=provenance(point.resolution, deployment.manifest.network.resolutions).value,
        accuracy=None
        if measured is None
        else AccuracySchema(
            top1=measured.top1, top5=measured.top5, dataset=measured.dataset, n=measured.n
        ),
        latency_ms=latency,
        measured=shape in model.measurements.curves,
        smallest_budget_ms=round(smallest, 3),
        macs=cost.macs,
        weight_bytes=cost.weight_bytes,
        cached=point in deployment.cache,
        cold_ms=0.0 if point in deployment.cache else round(model.cold_ms(shape, now), 3),
        frontier=listing in deployment.frontier,
    )


def describe_cache(cache: WeightCache, now_ms: float) -> CacheSchema:
    """The weight cache as it stands now."""
    return CacheSchema(
        bytes=cache.bytes,
        capacity_bytes=cache.capacity_bytes,
        hits=cache.facts.hits,
        misses=cache.facts.misses,
        evictions=cache.facts.evictions,
        networks=[
            CachedNetworkSchema(
                resolution=entry.point.resolution,
                mode=entry.point.mode,
                precision=entry.point.precision,
                memory_bytes=entry.memory_bytes,
                hits=entry.hits,
                age_s=round((now_ms - entry.made_ms) / 1000, 1),
                generation_ms=None if entry.build_ms is None else round(entry.build_ms, 3),
            )
            for entry in cache.entries()
        ],
    )


def resolutions_router(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(prefix="/resolutions", tags=["resolutions"])

    def deployed() -> Deployment:
        if service.deployment is None:
            raise NotReadyError("No bundle is loaded yet; try again soon.")
        return service.deployment

    def point_for(deployment: Deployment, resolution: int, mode: Mode | None) -> OperatingPoint:
        if resolution > service.settings.max_resolution:
            raise ParameterError(
                f"resolution may be at most {service.settings.max_resolution} here.", "resolution"
            )
        return max(deployment.catalogue.find(resolution, mode), key=lambda x: x.rank).point

    def warm_here(resolution: int, mode: Mode | None) -> WarmSchema:
        deployment = deployed()
        point = point_for(deployment, resolution, mode)
        state = "cached"
        if point not in deployment.cache:
            service.warm(deployment, point)
            state = "building"
        return _warm(point, state)

    def evict_here(resolution: int, mode: Mode | None) -> WarmSchema | None:
        deployment = deployed()
        found = [
            point
            for point in (*deployment.cache.points(), *deployment.cache.building())
            if point.resolution == resolution and mode in (None, point.mode)
        ]
        for point in found:
            deployment.cache.evict(point)
        return _warm(found[0], "evicted") if found else None

    @router.get("", responses=problems(401, 503))
    async def list_resolutions() -> ResolutionsSchema:
        """Every operating point the policy considers, with its accuracy and its latency here."""
        deployment = deployed()
        return ResolutionsSchema(
            model=deployment.manifest.name,
            model_version=deployment.manifest.version,
            engine=deployment.engine.name,
            device=deployment.engine.device,
            quantile=service.settings.quantile,
            max_batch=service.settings.max_batch,
            crop_ratio=deployment.preprocessing.crop_ratio,
            drift=round(deployment.model.drift(service.clock()), 3),
            cache=describe_cache(deployment.cache, service.clock()),
            operating_points=[
                describe(service, deployment, x) for x in deployment.catalogue.listings
            ],
        )

    @router.post("/{resolution}/warm", status_code=202, responses=problems(401, 422, 503))
    async def warm(
        resolution: Resolution, mode: Annotated[Mode | None, Query()] = None
    ) -> WarmSchema:
        """Make a resolution ready in the background, in every worker."""
        found = warm_here(resolution, mode)
        await service.crew.ask("warm", {"resolution": resolution, "mode": mode})
        return found

    @router.delete("/{resolution}", responses=problems(401, 404, 422, 503))
    async def evict(
        resolution: Resolution, mode: Annotated[Mode | None, Query()] = None
    ) -> WarmSchema:
        """Drop a resolution's weights from the cache; they are generated again when needed.

        Every worker does.
        """
        told = service.crew.ask("evict", {"resolution": resolution, "mode": mode})
        found = [
            evict_here(resolution, mode),
            *(WarmSchema(**x["evicted"]) for x in await told if x and x["evicted"]),
        ]
        for evicted in found:
            if evicted is not None:
                return evicted
        raise NotCachedError(f"No weights for {resolution} px are in the cache.")

    async def warm_with_another(facts: Facts) -> Facts:
        warm_here(**facts)
        return {}

    async def evict_with_another(facts: Facts) -> Facts:
        evicted = evict_here(**facts)
        return {"evicted": evicted.model_dump() if evicted else None}

    service.crew.on("warm", warm_with_another)
    service.crew.on("evict", evict_with_another)
    return router


def _warm(point: OperatingPoint, state: str) -> WarmSchema:
    return WarmSchema.model_validate(
        {
            "resolution": point.resolution,
            "mode": str(point.mode),
            "precision": point.precision,
            "state": state,
        }
    )
