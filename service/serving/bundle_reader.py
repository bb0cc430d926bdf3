"""Reading a bundle into memory that nobody can take away.

Overwriting a mapped file in place kills whoever reads it, so a bundle is never served from the file
it came from. A single process copies the tensors. Workers map a copy of the file, widened to
float32, in a directory of their own: its pages are in memory once, however many they are.
"""

from __future__ import annotations

import logging
from pathlib import Path

from san_core.bundle import Bundle, load, save
from san_core.errors import BundleError
from service.latency.store import fingerprint

logger = logging.getLogger(__name__)


class BundleReader:
    """Reads bundles; with a directory, so that the processes that have it share the tensors."""

    def __init__(self, directory: Path | None = None, *, resume: bool = False) -> None:
        self._directory = directory
        self._resume = resume

    def read(self, path: Path) -> tuple[Bundle, str]:
        """A bundle and the SHA-256 of its file.

        A reader that resumes begins with what the others serve, whatever the file is by now.
        """
        if self._directory is None:
            bundle = load(path)
            _own_memory(bundle)
            return bundle, fingerprint(path)
        if self._resume and self._serves.exists():
            self._resume = False
            sha256 = self._serves.read_text()
            return load(self._copy(sha256)), sha256
        return self._shared(path)

    def serves(self, sha256: str) -> None:
        """Note which bundle serves: a worker that starts now begins with it."""
        if self._directory is None:
            return
        beside = self._directory / "serves.new"
        beside.write_text(sha256)
        beside.replace(self._serves)
        for copy in self._directory.glob("*.safetensors"):
            if copy != self._copy(sha256):
                copy.unlink(missing_ok=True)  # whoever still maps it keeps it

    @property
    def _serves(self) -> Path:
        assert self._directory is not None
        return self._directory / "serves"

    def _copy(self, sha256: str) -> Path:
        assert self._directory is not None
        return self._directory / f"{sha256}.safetensors"

    def _shared(self, path: Path) -> tuple[Bundle, str]:
        sha256 = fingerprint(path) if path.is_file() else ""
        copy = self._copy(sha256)
        if not copy.exists():
            bundle = load(path)
            try:
                save(copy, bundle.network, bundle.manifest, extras=bundle.extras)
            except BundleError as error:
                logger.warning("the workers cannot share the bundle, each has its own: %s", error)
                _own_memory(bundle)
                return bundle, sha256
            if fingerprint(path) != sha256:
                copy.unlink()
                raise BundleError(f"{path} was changed while it was read; try again.")
        return load(copy), sha256


def _own_memory(bundle: Bundle) -> None:
    for tensor in (*bundle.network.parameters(), *bundle.network.buffers()):
        tensor.data = tensor.data.clone()
    bundle.extras = {name: tensor.clone() for name, tensor in bundle.extras.items()}
