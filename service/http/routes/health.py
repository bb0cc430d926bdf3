"""Probes, `/version` and `/admin/reload`."""

from __future__ import annotations

import os
from importlib import metadata

from fastapi import APIRouter

from service.http.access.route_facts import Access, facts
from service.http.openapi import problems
from service.http.schemas import ModelSchema, ReloadSchema, StatusSchema, VersionSchema
from service.serving.service import Service

_PUBLIC = facts(Access.PUBLIC)


def health_router(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["operations"])

    @router.head("/healthz", include_in_schema=False, openapi_extra=_PUBLIC)
    @router.get("/healthz", summary="Is it alive?", openapi_extra=_PUBLIC)
    async def healthz() -> StatusSchema:
        """Alive: the event loop answers."""
        return StatusSchema(status="alive")

    @router.head("/readyz", include_in_schema=False, openapi_extra=_PUBLIC)
    @router.get("/readyz", summary="Is it ready?", responses=problems(503), openapi_extra=_PUBLIC)
    async def readyz() -> StatusSchema:
        """Ready: a bundle is loaded and its frontier was measured on this host."""
        if not service.is_ready:
            raise service.not_ready()
        return StatusSchema(status="ready")

    @router.get("/version", summary="What runs here", responses=problems(401))
    async def version() -> VersionSchema:
        """What runs here."""
        deployment = service.deployment
        if deployment is None:
            return VersionSchema(
                version=metadata.version("san-serve"),
                model=None,
                engine=None,
                device=None,
                engine_facts={},
                pid=os.getpid(),
            )
        manifest, engine = deployment.manifest, deployment.engine
        return VersionSchema(
            version=metadata.version("san-serve"),
            model=ModelSchema(
                name=manifest.name,
                version=manifest.version,
                sha256=deployment.sha256,
                provenance=manifest.provenance,
            ),
            engine=engine.name,
            device=engine.device,
            engine_facts=engine.describe(),
            pid=os.getpid(),
        )

    @router.post(
        "/admin/reload",
        summary="Read the bundle again",
        responses=problems(401, 403, 409, 429),
        openapi_extra=facts(Access.ADMIN),
    )
    async def reload() -> ReloadSchema:
        """Read the bundle's file again and swap it in without dropping a request.

        A broken file leaves the old bundle serving, and one that did not change changes nothing.
        Which file it is, the operator said at start. A few swaps a minute are possible.
        """
        before = service.deployment
        now = await service.reload()
        told = await version()
        return ReloadSchema(reload="unchanged" if now is before else "swapped", **told.model_dump())

    return router
