"""Whether a browser sends a request on behalf of a page that is not ours.

A service on a developer's machine often has no keys, and every page that is open in a browser there
can reach it. Two things give such a page away: the browser says which origin a request that changes
something comes from (`Sec-Fetch-Site`, `Origin`), and a page that points its own name at this
machine (DNS rebinding) still asks for that name (`Host`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import lru_cache

from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import ForbiddenError
from service.request.client import is_address, is_loopback

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OURS = (b"same-origin", b"none")


class OriginCheck:
    """Refuses what other pages send, and hosts that are not ours."""

    def __init__(
        self, app: ASGIApp, *, allowed_origins: Sequence[str] = (), local_only: bool = False
    ) -> None:
        self._app = app
        self._allowed = frozenset(origin.encode() for origin in allowed_origins)
        self._local_only = local_only
        """Only this machine is to reach the service, and no key is asked for."""

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        self._check(scope)
        return self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        host = origin = site = None
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
        if self._local_only and host is not None and not self._is_local(scope, host):
            raise ForbiddenError(
                "This service is for its own machine: ask for localhost or its address, or set "
                "SAN_HOST or SAN_API_KEYS."
            )
        if scope["method"] in _SAFE or origin in self._allowed or b"*" in self._allowed:
            return
        if (site is not None and site not in _OURS) or (
            site is None and origin is not None and _host_of(origin) != host
        ):
            raise ForbiddenError(
                "A page of another origin may not do this; SAN_CORS_ORIGINS names those that may."
            )

    @staticmethod
    def _is_local(scope: Scope, host: bytes) -> bool:
        peer = scope.get("client")
        if peer is None or not is_loopback(str(peer[0])):
            return True  # behind something else, which has its own rules
        return _names_this_machine(host)


@lru_cache(maxsize=64)
def _names_this_machine(host: bytes) -> bool:
    name = host.decode("latin-1").lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    return name == "localhost" or name.endswith(".localhost") or is_address(name)


def _host_of(origin: bytes) -> bytes:
    """`http://host:port` -> `host:port`."""
    return origin.partition(b"://")[2]
