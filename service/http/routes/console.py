"""`GET /`: the live console. `GET /docs`: the API, to read and to try. Both work offline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastapi_offline
from fastapi import FastAPI, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

from service.http.access.route_facts import Access, facts

WEB = Path(__file__).parents[1] / "web"
SWAGGER_UI = Path(fastapi_offline.__file__).parent / "static"
"""Swagger UI's own files, as a package brings them: nothing is fetched from elsewhere."""

_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    # blob: is the picture the visitor chose; it never leaves the page except to /classify.
    "img-src": "'self' blob:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}


def _policy(**more: str) -> str:
    changed = _POLICY | {name.replace("_", "-"): value for name, value in more.items()}
    return "; ".join(f"{name} {value}" for name, value in changed.items())


# Nothing may turn text into markup or code, so a class name or a file name cannot either.
CONTENT_SECURITY_POLICY = _policy(require_trusted_types_for="'script'", trusted_types="'none'")
HEADERS: Mapping[str, str] = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Revalidate: a page of one version with modules of another is worse than a round trip.
    "cache-control": "no-cache",
}

DOCS_HEADERS: Mapping[str, str] = {
    **HEADERS,
    # Swagger UI sets styles and builds markup by itself, and shows the pictures that are sent.
    "content-security-policy": _policy(
        style_src="'self' 'unsafe-inline'", img_src="'self' data: blob:"
    ),
}


class Assets(StaticFiles):
    """Static files under the same headers as the page."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """The file, or 304."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(HEADERS)
        return response


def add_console(api: FastAPI) -> None:
    """The pages at `/` and `/docs`, and the files they are made of."""
    api.mount("/assets", Assets(directory=WEB / "assets"), name="assets")
    api.mount("/docs/files", Assets(directory=SWAGGER_UI), name="swagger-ui")

    @api.head("/docs", include_in_schema=False, openapi_extra=facts(Access.PUBLIC))
    @api.get("/docs", include_in_schema=False, openapi_extra=facts(Access.PUBLIC))
    async def docs() -> FileResponse:
        return FileResponse(WEB / "docs.html", media_type="text/html", headers=dict(DOCS_HEADERS))

    @api.head("/favicon.ico", include_in_schema=False, openapi_extra=facts(Access.PUBLIC))
    @api.get("/favicon.ico", include_in_schema=False, openapi_extra=facts(Access.PUBLIC))
    async def favicon() -> FileResponse:
        return FileResponse(WEB / "assets" / "favicon.svg", headers=dict(HEADERS))

    @api.head("/", include_in_schema=False, openapi_extra=facts(Access.PUBLIC))
    @api.get("/", include_in_schema=False, openapi_extra=facts(Access.PUBLIC))
    async def console() -> FileResponse:
        return FileResponse(WEB / "index.html", media_type="text/html", headers=dict(HEADERS))
