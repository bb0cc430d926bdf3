"""API keys: several per kind of route, compared in constant time, from variables or a file."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from pydantic import SecretStr
from starlette.types import ASGIApp, Receive, Scope, Send

from san_core.errors import SanError
from service.errors import ForbiddenError, KeyFileError, UnauthorisedError
from service.http.access.route_facts import Access, RouteTable
from service.request.client import CLIENT, ClientIdentity, is_loopback, presented_key
from service.settings import Settings


class KeyRing:
    """The keys that open one kind of route; an empty ring asks for none."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys if key]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def opens(self, key: str) -> bool:
        """Compare with every key, whichever matches, so that time tells nothing."""
        digest = _digest(key)
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches)

    @classmethod
    def read(cls, keys: Iterable[SecretStr], file: Path | None) -> KeyRing:
        """Keys given directly, and those in a file: one per line, `#` starts a comment."""
        found = [key.get_secret_value() for key in keys]
        if file is not None:
            try:
                lines = file.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise KeyFileError(f"The key file {file} cannot be read: {error}.") from error
            listed = [key for line in lines if (key := line.partition("#")[0].strip())]
            if not listed:
                # An empty file must not leave the routes open.
                raise KeyFileError(f"The key file {file} holds no key.")
            found += listed
        return cls(found)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


class Keys:
    """The keys of every kind of route."""

    def __init__(self, settings: Settings) -> None:
        self._api = KeyRing.read(settings.api_keys, settings.api_keys_file)
        self._metrics = KeyRing.read(settings.metrics_keys, settings.metrics_keys_file)
        self._admin = KeyRing.read(settings.admin_keys, settings.admin_keys_file)

    @property
    def keyed(self) -> bool:
        """Whether the API asks for keys."""
        return bool(self._api)

    def check(self, access: Access, headers: Iterable[tuple[bytes, bytes]], address: str) -> None:
        """Raise unless a request may use a route with this access."""
        match access:
            case Access.ADMIN if self._admin:
                _need(self._admin, headers)
            case Access.ADMIN if self._api or not is_loopback(address):
                raise ForbiddenError(
                    "Set SAN_ADMIN_KEYS to use this from another machine or beside API keys."
                )
            case Access.METRICS if self._metrics:
                _need(self._metrics, headers)
            case Access.API if self._api:
                _need(self._api, headers)


def _need(ring: KeyRing, headers: Iterable[tuple[bytes, bytes]]) -> None:
    key = presented_key(headers)
    if key is None:
        raise UnauthorisedError(
            "Send an API key as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'."
        )
    if not ring.opens(key):
        raise UnauthorisedError("The API key is not known.")


class Authentication:
    """The layer that asks for keys, and notes which client a request comes from."""

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        clients: ClientIdentity,
        routes: RouteTable,
        on_refused: Callable[[Scope, Exception], None] = lambda *_: None,
    ) -> None:
        self._app = app
        self._keys = keys
        self._clients = clients
        self._routes = routes
        self._on_refused = on_refused
        """Called for a request to classify that lacks its key: it is counted too."""

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        facts = self._routes[scope]
        try:
            self._keys.check(facts.access, scope["headers"], self._clients.address(scope))
        except SanError as error:
            if facts.classifies:
                self._on_refused(scope, error)
            raise
        scope[CLIENT] = self._clients.of(scope)
        return self._app(scope, receive, send)
