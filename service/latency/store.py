"""Latencies kept between starts, keyed by host, engine and bundle."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import tempfile
from pathlib import Path

import orjson

from service.latency.model import Measurements

logger = logging.getLogger(__name__)

FORMAT = 3
"""Changes with what is measured and with how: times taken otherwise must not be mixed."""


def host_name() -> str:
    """What tells one machine's speed from another's: CPU model, number of cores, memory apart."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{platform.node()}|{model}|{os.cpu_count()}"


def fingerprint(path: Path) -> str:
    """SHA-256 of a bundle file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def store_key(*parts: str) -> str:
    """A short name for a combination of host, engine, bundle and sizes."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def candidates(cache_dir: Path | None, bundle: Path) -> list[Path]:
    """Directories to try, in order."""
    if cache_dir is not None:
        return [cache_dir]
    home = os.environ.get("XDG_CACHE_HOME")
    user = Path(home) if home else Path.home() / ".cache"
    return [bundle.parent / ".san-latency", user / "san-serve"]


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
