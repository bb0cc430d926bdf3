"""`/resolutions`: what the policy chooses among, and the weight cache."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from san_core.preprocessing import ImageHeader
from san_core.resolution import MAX_RESOLUTION, MIN_RESOLUTION, provenance
from service.engines.weight_cache import WeightCache
from service.errors import NotCachedError, ParameterError
from service.http.access.route_facts import Access, facts
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
from service.latency.decode_cost import decode_work
from service.serving.bundles.deployment import Deployment
from service.serving.service import Service

_TYPICAL = ImageHeader("JPEG", 500, 375)
_TYPICAL_BYTES = 50_000

Resolution = Annotated[int, Path(ge=MIN_RESOLUTION, le=MAX_RESOLUTION)]


def describe(service: Service, deployment: Deployment, listing: Listing) -> OperatingPointSchema:
    """One operating point as it stands now."""
    model, scheduler = deployment.model, deployment.scheduler
    point, shape = listing.point, listing.shape
    sizes = sorted({1, service.settings.max_batch})
    latency = {
        str(n): LatencySchema(
            p50=round(model.forward_ms(shape, n), 3),
            p95=round(model.forward_ms(shape, n) * scheduler.whole.alone.at(0.95), 3),
            p99=round(model.forward_ms(shape, n) * scheduler.whole.alone.at(0.99), 3),
        )
        for n in sizes
    }
    at_least = deployment.preprocessing.least_side(point.resolution)
    work = decode_work(_TYPICAL, _TYPICAL_BYTES, at_least)
    smallest = scheduler.smallest_budget_ms(listing, model.decode_ms(work))
    cost = deployment.cost(shape)
    measured = listing.measured
    return OperatingPointSchema(
        resolution=point.resolution,
        mode=point.mode,
        precision=point.precision,
        provenance=provenance(point.resolution, deployment.manifest.network.resolutions).value,
        crop_ratio=round(deployment.preprocessing.crop(point.resolution), 4),
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
        cold_ms=0.0 if point in deployment.cache else round(model.build_ms(point.precision), 3),
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

    def point_for(deployment: Deployment, resolution: int, mode: Mode | None) -> OperatingPoint:
        if resolution > service.settings.max_resolution:
            raise ParameterError(
                f"resolution may be at most {service.settings.max_resolution} here.", "resolution"
            )
        return max(deployment.catalogue.find(resolution, mode), key=lambda x: x.rank).point

    @router.get("", summary="What this host can offer", responses=problems(401, 503))
    async def list_resolutions() -> ResolutionsSchema:
        """Every operating point the policy considers, with its accuracy and its latency here."""
        deployment = service.deployed()
        await deployment.count_costs()
        return ResolutionsSchema(
            model=deployment.manifest.name,
            model_version=deployment.manifest.version,
            engine=deployment.engine.name,
            device=deployment.engine.device,
            quantile=service.settings.promise,
            max_batch=service.settings.max_batch,
            crop_ratio=deployment.preprocessing.crop(max(deployment.manifest.network.resolutions)),
            drift=round(deployment.model.drift, 3),
            cache=describe_cache(deployment.cache, service.clock()),
            operating_points=[
                describe(service, deployment, x) for x in deployment.catalogue.listings
            ],
        )

    @router.post(
        "/{resolution}/warm",
        summary="Make a size ready ahead of time",
        status_code=202,
        responses=problems(401, 403, 422, 429, 503),
        openapi_extra=facts(Access.ADMIN),
    )
    async def warm(
        resolution: Resolution, mode: Annotated[Mode | None, Query()] = None
    ) -> WarmSchema:
        """Make a resolution ready in the background."""
        deployment = service.deployed()
        point = point_for(deployment, resolution, mode)
        if point in deployment.cache:
            return _warm(point, "cached")
        service.warm(deployment, point)
        return _warm(point, "building")

    @router.delete(
        "/{resolution}",
        summary="Drop a size from the weight cache",
        responses=problems(401, 403, 404, 422, 503),
        openapi_extra=facts(Access.ADMIN),
    )
    async def evict(
        resolution: Resolution, mode: Annotated[Mode | None, Query()] = None
    ) -> WarmSchema:
        """Drop a resolution's weights from the cache; they are generated again when needed."""
        cache = service.deployed().cache
        found = [
            point
            for point in (*cache.points(), *cache.building())
            if point.resolution == resolution and mode in (None, point.mode)
        ]
        if not found:
            raise NotCachedError(f"No weights for {resolution} px are in the cache.")
        for point in found:
            cache.evict(point)
        return _warm(found[0], "evicted")

    return router


def _warm(point: OperatingPoint, state: Literal["cached", "building", "evicted"]) -> WarmSchema:
    return WarmSchema(
        resolution=point.resolution, mode=point.mode, precision=point.precision, state=state
    )
