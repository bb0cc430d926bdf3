"""What a run writes while it runs: JSON lines, and TensorBoard if it is installed."""

import importlib.util
import json
import logging
import os
from pathlib import Path
from typing import Any, TextIO

from san_core.atomic import replacing

FILE_NAME = "log.jsonl"

log = logging.getLogger(__name__)


def read(path: Path) -> list[dict[str, Any]]:
    """Read a log; a last line that was cut off by a crash is left out."""
    if not path.is_file():
        return []
    events = []
    for line in path.read_text().splitlines():
        try:
            events.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return events


def cut(path: Path, step: int) -> None:
    """Drop the events after `step`: a resumed run writes them again."""
    kept = [event for event in read(path) if event["step"] <= step]
    with replacing(path) as draft:
        draft.write_text("".join(json.dumps(event) + "\n" for event in kept))


class RunLog:
    """Appends events; every process but the main one has a log that writes nothing.

    A disk that is full costs events, not the run.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file: TextIO | None = None
        self._board: Any = None
        self._warned = False
        if folder is None:
            return
        self._file = (folder / FILE_NAME).open("a", buffering=1)
        if importlib.util.find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter  # optional, and slow to import

            self._board = SummaryWriter(str(folder / "tensorboard"))

    def write(self, kind: str, step: int, **fields: Any) -> None:
        """Append one event."""
        if self._file is None:
            return
        try:
            self._write(kind, step, fields)
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            log.warning("The log could not be written (%s); training goes on without.", error)
        self._warned = True

    def _write(self, kind: str, step: int, fields: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps({"kind": kind, "step": step, **fields}) + "\n")
        if self._board is not None:
            for name, value in fields.items():
                if isinstance(value, dict):
                    for key, number in value.items():
                        self._board.add_scalar(f"{kind}/{name}/{key}", number, step)
                elif isinstance(value, (int, float)):
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """Flush and close."""
        try:
            if self._file is not None:
                with self._file:
                    self._file.flush()
                    os.fsync(self._file.fileno())
            if self._board is not None:
                self._board.close()
        except OSError as error:
            self._warn(error)
