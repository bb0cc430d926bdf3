"""`python -m tests.campaign`: attack a service and let a polite client judge.

Each attack comes from one client, on four connections, while another asks for a photograph within
50 ms ten times a second. It fails if that client is not served as promised in docs/security.md, if
the attacker is answered with a 5xx, or if a process of the service ends that should not.
Before each attack the polite client is alone for a while: all of these together are the quiet
figures that the attacks are compared with. How much of the processors the host took away meanwhile
("stolen") stands beside each verdict.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers.our_service import OurService
from benchmarks.servers.processes import family
from tests.campaign.faults import FAULTS, WORKER_ENDED, Fault, started
from tests.campaign.images import IMAGES, attack
from tests.campaign.polite import Verdict, together
from tests.campaign.wire import WIRE, attempts, post

ALL_FORMATS = "JPEG,PNG,WEBP,GIF,BMP,TIFF,PPM,AVIF"
LIMIT_MB = 4000
MOST_CPU_S = 0.3
"""For one request."""
_LONGEST_S = 20 * 60
"""What has not begun by then is not run, and counts as broken."""
_ONE_ROUND_S = 0.01
_ALONE_S = 8.0
_COST_ROUNDS = 3


@dataclass
class Seen:
    """One spell: the polite client's figures, the service's memory, and the machine's state."""

    verdict: Verdict
    memory_mb: float
    stolen: float
    attempts: int = 0
    """Connections that the attacker opened."""
    failures: int = 0
    """Of the attacker's requests, how many were answered with a 5xx."""
    cost_s: float = 0.0
    restarts: int = 0
    """Processes that ended unasked, or were killed for memory."""
    may_lose: bool = False
    """A worker is killed, and takes what it held with it."""


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


def processor_ticks() -> tuple[int, int]:
    """Of all processors so far: what the host took for others, and all."""
    fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return fields[7], sum(fields)


def run(module: str, *arguments: object) -> subprocess.Popen[str]:
    """One of the campaign's own processes, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.campaign.{module}", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def watched(port: int, attack: str | None, seconds: float, pid: int) -> Seen:
    """What the polite client saw meanwhile, and the most memory that was resident."""
    attacker = run("attacker", port, attack, seconds) if attack is not None else None
    if attacker is not None:
        assert attacker.stdout is not None
        attacker.stdout.readline()
    stolen, all_ticks = processor_ticks()
    polite = run("polite", port, seconds)
    if attacker is not None:
        assert attacker.stdin is not None
        attacker.stdin.write("\n")
        attacker.stdin.flush()
    most, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        most = max(most, resident_mb(pid))
        time.sleep(0.5)
    verdict = Verdict(**json.loads(polite.communicate(timeout=120)[0]))
    now_stolen, now_all = processor_ticks()
    seen = Seen(verdict, most, (now_stolen - stolen) / max(1, now_all - all_ticks))
    if attacker is not None:
        told = json.loads(attacker.communicate(timeout=120)[0])
        seen.attempts = told["attempts"]
        seen.failures = sum(n for status, n in told["statuses"].items() if int(status) >= 500)
    return seen


def under(fault: Fault) -> tuple[Seen, Seen, list[str]]:
    """What the polite client saw before and during a fault, and what else is to be told."""
    with started(fault) as (server, setting):
        watched(server.port, None, 2, server.pid)
        alone = watched(server.port, None, _ALONE_S, server.pid)
        end = time.monotonic() + fault.seconds
        acting = threading.Thread(target=fault.act, args=(server, setting, end))
        acting.start()
        seen = watched(server.port, None, fault.seconds, server.pid)
        acting.join()
        watched(server.port, None, 1, server.pid)  # it goes on
        seen.may_lose = fault.ends_a_worker
        ended = 0 if fault.ends_a_worker else server.log(10_000).count(WORKER_ENDED)
        seen.restarts = ended + setting.killed_for_memory + server.is_over
        return alone, seen, [*setting.notes, server.log(3)]


def cost_of(port: int, name: str, pid: int, statuses: list[int] | None = None) -> float:
    """CPU time that one connection of an attack takes, on average if one round opens several."""
    image = attack(name) if name in IMAGES else b""
    first, before = next(attempts), cpu_seconds(pid)
    if name in IMAGES:
        status = post(port, image)
        if statuses is not None:
            statuses.append(status)
    else:
        WIRE[name](port, time.monotonic() + _ONE_ROUND_S)
    return (cpu_seconds(pid) - before) / max(1, next(attempts) - first - 1)


def complaints(seen: Seen, quiet: Verdict) -> list[str]:
    """Which promises were broken."""
    verdict = seen.verdict
    checks = {
        "answered": verdict.answered_share >= 0.99,
        "in time": verdict.in_time_share >= 0.97,
        "accuracy": verdict.accuracy >= 0.70,
        "p99": verdict.p99_ms <= 2 * quiet.p99_ms,
        "5xx or lost": (not verdict.failed or seen.may_lose) and not seen.failures,
        "restart": not seen.restarts,
        "memory": seen.memory_mb <= LIMIT_MB,
        "cost": seen.cost_s <= MOST_CPU_S,
    }
    return [name for name, holds in checks.items() if not holds]


def main() -> int:
    """Run the campaign and print its table."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each attack lasts")
    parser.add_argument(
        "--only", default="", help="run only attacks with one of these in their name (a|b|c)"
    )
    parser.add_argument("--port", type=int, help="attack a service that is running already")
    parser.add_argument("--pid", type=int, help="and that has this process id")
    parser.add_argument(
        "--costs",
        action="store_true",
        help="only what one request of each attack costs: CPU time of the service and its helpers",
    )
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    parts = args.only.split("|")
    faults = [n for n in FAULTS if any(part in n for part in parts) and args.port is None]
    if args.costs:
        faults = []
    end = time.monotonic() + _LONGEST_S
    chosen = [n for n in [*IMAGES, *WIRE] if any(part in n for part in parts)]
    broken = _attack(chosen, args, end)
    for name in faults:
        broken += _left(name, end) or _fault(name, FAULTS[name], args.json)
    return min(1, broken)


def _left(name: str, end: float) -> int:
    """1 if there is no time left for this one."""
    is_over = time.monotonic() > end
    if is_over:
        print(f"{name:26} NOT RUN: {_LONGEST_S / 60:.0f} minutes are over", flush=True)
    return int(is_over)


def _fault(name: str, fault: Fault, path: Path | None) -> int:
    """Report on a fault; its service's own quiet time is what it is compared with."""
    alone, seen, notes = under(fault)
    if path is not None:
        path = path.with_name(f"{path.stem}-{name.replace(' ', '_').replace('%', '')}.json")
    broken = report([alone], {name: seen}, path)
    print("  " + "; ".join(notes))
    return broken


def _attack(chosen: list[str], args: argparse.Namespace, end: float) -> int:
    """Attack one service with everything that was chosen, until there is no time left."""
    if not chosen:
        return 0
    server = None
    if args.port is None:
        server = OurService(options=["--formats", ALL_FORMATS])
        server.start()
        server.await_ready()
    port, pid = (args.port, args.pid) if server is None else (server.port, server.pid)
    alone: list[Seen] = []
    found: dict[str, Seen] = {}
    left = 0
    try:
        if args.costs:
            return _costs(chosen, port, pid)
        watched(port, None, 3, pid)
        for name in chosen:
            if _left(name, end):
                left += 1
                continue
            alone.append(watched(port, None, args.seconds / 4, pid))
            cost = cost_of(port, name, pid)
            found[name] = watched(port, name, args.seconds, pid)
            found[name].cost_s = cost
            if server is not None and server.is_over:
                found[name].restarts = 1
                break
            time.sleep(1)
        if server is not None and server.log():
            print(server.log(4))
    finally:
        if server is not None:
            server.stop()
    return report(alone, found, args.json) or min(1, left)


def _costs(chosen: list[str], port: int, pid: int) -> int:
    """Print what one request of each attack costs; 1 if any costs too much."""
    broken = 0
    for name in chosen:
        statuses: list[int] = []
        costs = [cost_of(port, name, pid, statuses) for _ in range(_COST_ROUNDS)]
        broken += max(costs) > MOST_CPU_S
        seen = ", ".join(map(str, sorted(set(statuses))))
        print(
            f"{name:30} {max(costs):5.2f} s at most, {min(costs):5.2f} at least  {seen}", flush=True
        )
    return min(1, broken)


def report(alone: list[Seen], found: dict[str, Seen], path: Path | None) -> int:
    """Print the table, keep the figures; 1 if anything was broken."""
    quiet = together([x.verdict for x in alone])
    stolen = sum(x.stolen for x in alone) / max(1, len(alone))
    print_row("(nothing)", Seen(quiet, max((x.memory_mb for x in alone), default=0), stolen), [])
    rows, broken = [], 0
    for name, seen in found.items():
        problems = complaints(seen, quiet)
        broken += bool(problems)
        print_row(name, seen, problems)
        verdict = seen.verdict
        rows.append(
            {
                "attack": name,
                "broken": problems,
                "answered": verdict.answered_share,
                "in_time": verdict.in_time_share,
                "accuracy": verdict.accuracy,
                "p99_ms": verdict.p99_ms,
                "quiet_p99_ms": quiet.p99_ms,
                "memory_mb": seen.memory_mb,
                "cost_s": seen.cost_s,
                "stolen": seen.stolen,
                "failures": seen.failures,
                "restarts": seen.restarts,
                "attempts": seen.attempts,
            }
        )
    if path is not None:
        path.write_text(json.dumps(rows, indent=1))
    print(f"{len(rows) - broken} of {len(rows)} attacks did no harm.")
    return 1 if broken else 0


def print_row(name: str, seen: Seen, broken: list[str]) -> None:
    """One line of the table."""
    verdict = seen.verdict
    print(
        f"{name:26} answered {verdict.answered_share:6.1%}  in time {verdict.in_time_share:6.1%}  "
        f"accuracy {verdict.accuracy:.3f}  p99 {verdict.p99_ms:6.1f} ms  {seen.memory_mb:5.0f} MB  "
        f"{seen.cost_s:4.2f} s  {seen.attempts:5} attempts  stolen {seen.stolen:5.1%}  "
        f"{'BROKEN: ' + ', '.join(broken) if broken else 'held'}"
        f"{' ' + str(verdict.failures) if verdict.failures else ''}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
