"""Compiled networks kept on disk between starts, bounded in bytes, oldest out first.

A file is its content behind its SHA-256: one that was cut or changed is never handed to a library
that would crash on it. A directory that cannot be written costs time, and nothing else.
"""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import suppress
from pathlib import Path

from san_core.atomic import replacing

_log = logging.getLogger(__name__)

_DIGEST = hashlib.sha256().digest_size
_SUFFIX = ".compiled"


def user_cache() -> Path:
    """Where what this host learnt is kept: SAN_CACHE_DIR, or the platform's place for a user."""
    from platformdirs import user_cache_path

    chosen = os.environ.get("SAN_CACHE_DIR")
    return Path(chosen) if chosen else user_cache_path("san-serve", appauthor=False)


class DiskCache:
    """Bytes by key."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self._directory = directory
        self._limit = limit_bytes
        self._writable = True

    def load(self, key: str) -> bytes | None:
        """What was kept under a key, unless it is damaged."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        digest, content = data[:_DIGEST], data[_DIGEST:]
        if hashlib.sha256(content).digest() != digest:
            _log.warning("ignoring %s: it is damaged", path)
            self.drop(key)
            return None
        with suppress(OSError):
            os.utime(path)  # used: among the last to go
        return content

    def save(self, key: str, content: bytes) -> None:
        """Keep content under a key."""
        if not self._writable:
            return
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with replacing(path) as draft, draft.open("wb") as file:
                file.write(hashlib.sha256(content).digest())
                file.write(content)
            self._make_room()
        except OSError as error:
            self._writable = False
            _log.info("compiled networks are not kept: %s", error)

    def drop(self, key: str) -> None:
        """Forget a key."""
        with suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        return self._directory / (hashlib.sha256(key.encode()).hexdigest()[:24] + _SUFFIX)

    def _make_room(self) -> None:
        files = []
        for path in self._directory.glob(f"*{_SUFFIX}"):
            with suppress(OSError):  # another process made room as well
                found = path.stat()
                files.append((found.st_mtime, found.st_size, path))
        size = sum(entry[1] for entry in files)
        for _, taken, path in sorted(files):
            if size <= self._limit:
                return
            with suppress(OSError):
                path.unlink()
            size -= taken
