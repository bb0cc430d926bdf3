"""Latencies kept between starts, keyed by CPU, quota, engine and architecture."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from pathlib import Path

import orjson

from service.engines.openvino.disk_cache import user_cache
from service.latency.curves import Measurements
from service.runtime.cgroups import cpu_quota
from service.runtime.cores import cpu_model

logger = logging.getLogger(__name__)

FORMAT = 4
"""Changes with what is measured and with how: times taken otherwise must not be mixed."""


def store_key(*parts: str) -> str:
    """A short name for this host with all that its times depend on.

    The host is its CPU and what of it is granted, not its name: each container has a new one.
    """
    host = (cpu_model(), str(os.cpu_count()), f"{cpu_quota() or 0:.2f}")
    return hashlib.sha256("\0".join((*host, *parts)).encode()).hexdigest()[:24]


def directories(cache_dir: Path | None) -> list[Path]:
    """Where times are looked for and kept: one place, by the platform's convention."""
    return [cache_dir or user_cache()]


class LatencyStore:
    """Reads and writes one file; a store that cannot be written is a warning, never a failure."""

    def __init__(self, directories: list[Path], key: str) -> None:
        self._paths = [directory / f"latency-{key}.json" for directory in directories]

    def load(self) -> Measurements | None:
        """What was measured before, if it is there and readable."""
        for path in self._paths:
            try:
                data = orjson.loads(path.read_bytes())
                if data["format"] == FORMAT:
                    return Measurements.from_json(data)
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                logger.warning("ignoring the stored latencies in %s: %s", path, error)
        return None

    def save(self, measurements: Measurements) -> Path | None:
        """Keep them in the first directory that can be written."""
        data = orjson.dumps(
            {"format": FORMAT, **measurements.to_json()}, option=orjson.OPT_INDENT_2
        )
        for path in self._paths:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as beside:
                    beside.write(data)
                Path(beside.name).replace(path)
                return path
            except OSError as error:
                logger.debug("cannot keep latencies in %s: %s", path, error)
        logger.warning(
            "latencies of this host cannot be kept: they are measured again at each start"
        )
        return None
