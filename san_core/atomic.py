"""Files that are there whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Name a file to write, which takes the place of `path` when the block ends well.

    After an error, a full disk or Ctrl-C the old file is as it was, and nothing is left beside it.
    A `durable` one is on the disk before it has its name, so that a power cut does no harm either.
    """
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as beside:
        draft = Path(beside) / path.name
        yield draft
        if durable:
            _sync(draft)
        draft.replace(path)
    if durable:
        _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
