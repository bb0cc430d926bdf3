"""Reading a bundle into memory that nobody can take away.

Overwriting a mapped file in place kills whoever reads it, so a bundle is never served from the file
it came from. The file is read once, into an anonymous file in memory; hash and tensors are of the
same bytes, whatever happens to the file meanwhile.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from san_core.bundle import Bundle, load, read_manifest
from san_core.errors import SanError


def read_bundle(path: Path) -> tuple[Bundle, str]:
    """A bundle and the SHA-256 of its file."""
    read_manifest(path)  # what is no bundle is not worth copying
    digest = hashlib.sha256()
    copy = os.memfd_create("bundle")
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
                os.write(copy, chunk)
        in_memory = Path(f"/proc/self/fd/{copy}")
        try:
            bundle = load(in_memory)
        except SanError as error:
            raise type(error)(str(error).replace(str(in_memory), str(path))) from error
    finally:
        os.close(copy)  # what is mapped stays
    bundle.path = path
    return bundle, digest.hexdigest()
