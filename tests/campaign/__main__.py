"""`python -m tests.campaign`: attack a service and let a polite client judge.

Each attack runs from one client, on four connections, while another asks for a photograph within
50 ms ten times a second. It fails if that client is not served as promised in docs/security.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from pathlib import Path

from benchmarks.servers.our_service import OurService
from benchmarks.servers.processes import family
from tests.campaign.images import ATTACKS
from tests.campaign.polite import PoliteClient, Verdict
from tests.campaign.wire import WIRE, Attack, image_flood, post

CONNECTIONS = 4
ALL_FORMATS = "JPEG,PNG,WEBP,GIF,BMP,TIFF,PPM,AVIF"
LIMIT_MB = 4000


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and its children so far, helpers that were killed included."""
    total = 0
    for one in family(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15] if one == pid else fields[11:13]))
    return total / 100


def resident_mb(pid: int) -> float:
    """Resident memory of a process and its children."""
    total = 0
    for one in family(pid):
        try:
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1])
        except OSError:
            continue
    return total * 4096 / 1e6


def watched(port: int, attack: Attack | None, seconds: float, pid: int) -> tuple[Verdict, float]:
    """What the polite client saw meanwhile, and the most memory that was resident."""
    end = time.monotonic() + seconds
    attackers = [
        threading.Thread(target=attack, args=(port, end), daemon=True)
        for _ in range(CONNECTIONS if attack is not None else 0)
    ]
    most = 0.0
    with PoliteClient(port) as client:
        for attacker in attackers:
            attacker.start()
        while time.monotonic() < end:
            most = max(most, resident_mb(pid))
            time.sleep(0.2)
        for attacker in attackers:
            attacker.join(timeout=60)
    return client.verdict, most


def complaints(verdict: Verdict, memory_mb: float, quiet: Verdict) -> list[str]:
    """Which promises were broken."""
    checks = {
        "answered": verdict.answered_share >= 0.99,
        "in time": verdict.in_time_share >= 0.97,
        "accuracy": verdict.accuracy >= 0.70,
        "p99": verdict.p99_ms <= 2 * quiet.p99_ms,
        "5xx or lost": not verdict.failed,
        "memory": memory_mb <= LIMIT_MB,
    }
    return [name for name, holds in checks.items() if not holds]


def main() -> int:
    """Run the campaign and print its table."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each attack lasts")
    parser.add_argument("--only", default="", help="run only attacks with this in their name")
    parser.add_argument("--port", type=int, help="attack a service that is running already")
    parser.add_argument("--pid", type=int, help="and that has this process id")
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    attacks: dict[str, Attack] = {name: image_flood(name) for name in ATTACKS} | WIRE
    chosen = {name: work for name, work in attacks.items() if args.only in name}
    server = None
    if args.port is None:
        server = OurService(options=["--formats", ALL_FORMATS])
        server.start()
        server.await_ready()
    port, pid = (args.port, args.pid) if server is None else (server.port, server.pid)
    rows, broken = [], 0
    try:
        watched(port, None, 3, pid)
        quiet, memory = watched(port, None, max(10.0, args.seconds), pid)
        print_row("(nothing)", quiet, memory, 0.0, [])
        for name, work in chosen.items():
            cost = 0.0
            if name in ATTACKS:
                before = cpu_seconds(pid)
                post(port, ATTACKS[name]())
                cost = cpu_seconds(pid) - before
            verdict, memory = watched(port, work, args.seconds, pid)
            problems = complaints(verdict, memory, quiet)
            if cost > 0.3:
                problems.append("cost")
            broken += bool(problems)
            print_row(name, verdict, memory, cost, problems)
            rows.append({"attack": name, "broken": problems, "p99_ms": verdict.p99_ms})
            time.sleep(1)
    finally:
        if server is not None:
            server.stop()
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1))
    print(f"{len(rows) - broken} of {len(rows)} attacks did no harm.")
    return 1 if broken else 0


def print_row(name: str, verdict: Verdict, memory: float, cost: float, broken: list[str]) -> None:
    """One line of the table."""
    print(
        f"{name:26} answered {verdict.answered_share:6.1%}  in time {verdict.in_time_share:6.1%}  "
        f"accuracy {verdict.accuracy:.3f}  p99 {verdict.p99_ms:6.1f} ms  {memory:5.0f} MB  "
        f"{cost:4.2f} s  {'BROKEN: ' + ', '.join(broken) if broken else 'held'}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
