"""One place owns the cores: engine, decoders and event loop are sized together."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from service.runtime.cgroups import granted_cores


@dataclass(frozen=True)
class CorePlan:
    """How many threads each part gets."""

    engine: int
    decode: int


def cpu_model() -> str:
    """What the CPU calls itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def available_cores() -> int:
    """Cores this process may use: its affinity, and what its control groups grant."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min(cores, granted_cores() or cores))


def plan_cores(
    cores: int, engine: str, *, engine_threads: int = 0, decode_threads: int = 0
) -> CorePlan:
    """Share out the cores; what the operator fixed stays fixed.

    On a GPU the engine's thread only hands over and waits: all cores but one for it and one for the
    event loop decode. Eager torch collapses when its OpenMP team has to share a core, so it leaves
    one to the decoders and the loop. OpenVINO degrades gently and, on a small machine, is better
    off with all of them: a single request decodes first and runs after, so the two rarely meet.
    Decoding a JPEG for int8 costs as much as running it, so decoders may have half of the cores,
    and two at least: with one decoder two cores answered a tenth less (`benchmarks.end_to_end`).
    """
    if cores <= 1:
        engine_default, decode_default = 1, 1
    elif engine == "gpu":
        engine_default, decode_default = 1, max(1, cores - 2)
    elif engine == "torch":
        engine_default = cores - max(1, cores // 4)
        decode_default = cores - engine_default
    else:
        decode_default = max(2, cores // 2)
        engine_default = cores if cores <= 4 else cores - cores // 4
    return CorePlan(engine_threads or engine_default, decode_threads or decode_default)
