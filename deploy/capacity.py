"""How many replicas a rate of requests needs, from what a running service measured on its host.

    python deploy/capacity.py http://localhost:8000 --rate 10000 --cores 4

Per answer at an operating point a replica spends

    core-seconds = (engine threads x latency of the largest batch / its size) + decode + overhead

and a replica of C cores at utilisation u carries u x C / core-seconds answers per second.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import urllib.request
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Host:
    """What a replica has, and what every answer costs there whatever its resolution."""

    cores: int
    engine_threads: int
    decode_ms: float
    overhead_ms: float
    utilisation: float = 0.6


@dataclass(frozen=True)
class Need:
    """What one operating point needs."""

    resolution: int
    precision: str
    mode: str
    accuracy: float | None
    core_ms: float
    per_replica: float
    replicas: int
    cores: int


def needs(host: Host, resolutions: dict[str, Any], rate: float) -> list[Need]:
    """One line per frontier point, fastest first."""
    found = []
    for point in resolutions["operating_points"]:
        if not point["frontier"]:
            continue
        batch, latency = max(
            ((int(n), latency["p50"]) for n, latency in point["latency_ms"].items()),
        )
        core_ms = host.engine_threads * latency / batch + host.decode_ms + host.overhead_ms
        per_replica = 1000 * host.utilisation * host.cores / core_ms
        replicas = math.ceil(rate / per_replica)
        accuracy = point["accuracy"]["top1"] if point["accuracy"] else None
        found.append(
            Need(
                point["resolution"],
                point["precision"],
                point["mode"],
                accuracy,
                core_ms,
                per_replica,
                replicas,
                replicas * host.cores,
            )
        )
    return sorted(found, key=lambda need: need.core_ms)


def stage_ms(metrics: str, stage: str) -> float | None:
    """The mean time of a stage over all answers so far."""
    values = []
    for part in ("sum", "count"):
        pattern = rf'^san_stage_duration_seconds_{part}{{stage="{stage}"}} (\S+)$'
        match = re.search(pattern, metrics, re.MULTILINE)
        values.append(float(match[1]) if match else 0.0)
    total, count = values
    return 1000 * total / count if count else None


def table(found: list[Need], price: float | None) -> str:
    """Markdown."""
    head = (
        "| resolution | precision | mode | accuracy | core-ms | answers/s per replica | replicas "
        "| cores |"
    )
    lines = [head + (" per hour |" if price else ""), "|---" * (9 if price else 8) + "|"]
    for need in found:
        accuracy = "-" if need.accuracy is None else f"{need.accuracy:.1%}"
        line = (
            f"| {need.resolution} | {need.precision} | {need.mode} | {accuracy} "
            f"| {need.core_ms:.1f} "
            f"| {need.per_replica:.0f} | {need.replicas} | {need.cores} |"
        )
        lines.append(line + (f" {need.cores * price:.2f} |" if price else ""))
    return "\n".join(lines)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        body: bytes = answer.read()
    return body


def main() -> int:
    """Ask a service and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("url", help="a running service that has answered typical images")
    parser.add_argument("--rate", type=float, default=10_000, help="answers per second")
    parser.add_argument("--cores", type=int, required=True, help="cores of a replica")
    parser.add_argument("--engine-threads", type=int, help="as configured (default: the cores)")
    parser.add_argument("--utilisation", type=float, default=0.6, help="share of the cores in use")
    parser.add_argument("--price-per-core-hour", type=float)
    args = parser.parse_args()
    metrics = _get(f"{args.url}/metrics").decode()
    decode = stage_ms(metrics, "decode")
    overhead = stage_ms(metrics, "overhead")
    if decode is None or overhead is None:
        sys.exit("The service has not answered anything yet: send it some typical images first.")
    threads = args.engine_threads or args.cores
    host = Host(args.cores, threads, decode, overhead, args.utilisation)
    found = needs(host, json.loads(_get(f"{args.url}/resolutions")), args.rate)
    sys.stdout.write(table(found, args.price_per_core_hour) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
