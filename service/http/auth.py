"""API keys: several per door, compared in constant time, from the environment or a file."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

from pydantic import SecretStr

from san_core.errors import SanError
from service.errors import ForbiddenError, UnauthorisedError
from service.request.client import is_loopback, presented_key
from service.settings import Settings


class KeyFileError(SanError):
    """A file of API keys cannot be used."""


class KeyRing:
    """The keys of one door; an empty ring is an open door."""

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
                # An empty file must lock the door, not open it.
                raise KeyFileError(f"The key file {file} holds no key.")
            found += listed
        return cls(found)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


class Doors:
    """Which keys a path asks for."""

    def __init__(self, settings: Settings) -> None:
        self._api = KeyRing.read(settings.api_keys, settings.api_keys_file)
        self._metrics = KeyRing.read(settings.metrics_keys, settings.metrics_keys_file)
        self._admin = KeyRing.read(settings.admin_keys, settings.admin_keys_file)

    @property
    def keyed(self) -> bool:
        """Whether the API asks for keys."""
        return bool(self._api)

    def check(self, path: str, headers: Iterable[tuple[bytes, bytes]], address: str) -> None:
        """Raise unless the request may come in."""
        if path.startswith("/admin"):
            if self._admin:
                self._need(self._admin, headers)
            elif self._api or not is_loopback(address):
                raise ForbiddenError(
                    "Set SAN_ADMIN_KEYS to use /admin from another machine or beside API keys."
                )
        elif path == "/metrics":
            if self._metrics:
                self._need(self._metrics, headers)
        elif self._api and not _is_public(path):
            self._need(self._api, headers)

    @staticmethod
    def _need(ring: KeyRing, headers: Iterable[tuple[bytes, bytes]]) -> None:
        key = presented_key(headers)
        if key is None:
            raise UnauthorisedError(
                "Send an API key as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'."
            )
        if not ring.opens(key):
            raise UnauthorisedError("The API key is not known.")


def _is_public(path: str) -> bool:
    """Probes, documents and the page itself: what it asks the API for is protected."""
    return path in ("/", "/healthz", "/readyz", "/openapi.json") or path.startswith(
        ("/docs", "/redoc", "/assets/", "/v2/health/")
    )
