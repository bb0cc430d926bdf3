"""What a route says about itself beyond its path: which keys open it, whether it classifies.

A route declares its facts once, in its decorator (`openapi_extra=facts(Access.PUBLIC)`), and they
show in the OpenAPI document. `RouteTable` finds them again for a request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import BaseRoute, Mount, compile_path
from starlette.types import Scope

_ACCESS, _CLASSIFIES = "x-access", "x-classifies"


class Access(StrEnum):
    """Which keys open a route."""

    PUBLIC = "public"
    """None: probes, documents, the page and its files."""
    API = "api"
    """An API key, if any are set."""
    METRICS = "metrics"
    """A key for metrics, if any are set."""
    ADMIN = "admin"
    """An admin key; without any, clients on this machine only."""


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """The facts of one route; the defaults hold for a path that no route has."""

    access: Access = Access.API
    classifies: bool = False
    """Whether its requests are counted and logged as requests to classify."""


def facts(access: Access, *, classifies: bool = False, **openapi: Any) -> dict[str, Any]:
    """A route's `openapi_extra`."""
    return openapi | {_ACCESS: access.value} | ({_CLASSIFIES: True} if classifies else {})


class RouteTable:
    """The facts of every route, by method and path."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self._exact: dict[tuple[str, str], RouteFacts] = {}
        self._patterns: list[tuple[frozenset[str], re.Pattern[str], RouteFacts]] = []
        for route in iter_route_contexts(routes):
            declared = RouteFacts(Access.PUBLIC)  # static files, and the framework's own pages
            if isinstance(route.original_route, APIRoute):
                extra = route.openapi_extra or {}
                declared = RouteFacts(
                    Access(extra.get(_ACCESS, Access.API)), extra.get(_CLASSIFIES, False)
                )
            methods = frozenset(getattr(route, "methods", None) or ("GET", "HEAD"))
            path = route.path or ""
            if isinstance(route.original_route, Mount):
                self._patterns.append((methods, re.compile(f"^{re.escape(path)}/"), declared))
            elif "{" in path:
                self._patterns.append((methods, compile_path(path)[0], declared))
            else:
                self._exact |= {(method, path): declared for method in methods}

    def __getitem__(self, scope: Scope) -> RouteFacts:
        method, path = scope["method"], scope["path"]
        found = self._exact.get((method, path))
        if found is not None:
            return found
        for methods, pattern, declared in self._patterns:
            if method in methods and pattern.match(path):
                return declared
        return RouteFacts()
