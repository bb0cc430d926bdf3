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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.servers.our_service import OurService
from benchmarks.servers.processes import family
from tests.campaign.faults import FAULTS, WORKER_ENDED, Fault, started
from tests.campaign.images import IMAGES, attack
from tests.campaign.polite import Verdict
from tests.campaign.processes import begin, run, started_attacker
from tests.campaign.report import MOST_CPU_S, Report, Seen
from tests.campaign.wire import WIRE, attempts, post
from tests.campaign.wire import statuses as wire_statuses

ALL_FORMATS = "JPEG,PNG,WEBP,GIF,BMP,TIFF,PPM,AVIF"
_LONGEST_S = 20 * 60
"""What has not begun by then is not run, and counts as broken."""
_LONGEST_ATTACK_S = 90.0
"""How long an attacker may take to get the last of its answers."""
_ONE_ROUND_S = 0.01
_ALONE_S = 6.0
_COST_ROUNDS = 3
_LONGEST_AFTER_S, _IDLE_SHARE = 5.0, 0.1
"""Of one core: what an idle service takes at most."""


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


def watched(port: int, attack: str | None, seconds: float, pid: int) -> Seen:
    """What the polite client saw meanwhile, and the most memory that was resident."""
    attacker = started_attacker(port, attack, seconds) if attack is not None else None
    stolen, all_ticks = processor_ticks()
    polite = run("polite", port, seconds)
    if attacker is not None:
        begin(attacker)
    most, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        most = max(most, resident_mb(pid))
        time.sleep(0.5)
    verdict = Verdict(**json.loads(polite.communicate(timeout=120)[0]))
    now_stolen, now_all = processor_ticks()
    seen = Seen(verdict, most, (now_stolen - stolen) / max(1, now_all - all_ticks))
    if attacker is not None:
        try:
            told = json.loads(attacker.communicate(timeout=_LONGEST_ATTACK_S)[0])
        except subprocess.TimeoutExpired:
            attacker.kill()
            seen.is_stuck = True
        else:
            seen.attempts, seen.statuses = told["attempts"], told["statuses"]
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
    seen = wire_statuses.copy()
    first, before = next(attempts), cpu_seconds(pid)
    if name in IMAGES:
        post(port, image)
    else:
        WIRE[name](port, time.monotonic() + _ONE_ROUND_S)
    opened = next(attempts) - first - 1
    if statuses is not None:
        statuses += (wire_statuses - seen).elements()
    return (_settled(pid) - before) / max(1, opened)


def _settled(pid: int) -> float:
    """CPU time so far, once what goes on after an answer (batches are compiled then) is over."""
    last, end = cpu_seconds(pid), time.monotonic() + _LONGEST_AFTER_S
    while time.monotonic() < end:
        time.sleep(0.2)
        now = cpu_seconds(pid)
        if now - last < _IDLE_SHARE * 0.2:
            return now
        last = now
    return last


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
    end = time.monotonic() + _LONGEST_S
    chosen = [n for n in [*IMAGES, *WIRE] if any(part in n for part in parts)]
    if args.costs:
        return _costs(chosen, args)
    report = Report(args.json)
    _attack(chosen, args, end, report)
    for name in faults:
        if not _left(name, end, report):
            _fault(name, FAULTS[name], report)
    return report.end()


def _left(name: str, end: float, report: Report) -> bool:
    """Whether this one is left out because the time is over."""
    is_over = time.monotonic() > end
    if is_over:
        report.leave_out(name, "there is no time left")
    return is_over


def _fault(name: str, fault: Fault, report: Report) -> None:
    """Report on a fault; its service's own quiet time is what it is compared with."""
    try:
        alone, seen, notes = under(fault)
    except Exception as error:  # a machine that cannot do this to a service: the others go on
        report.leave_out(name, repr(error))
        return
    report.add(name, seen, [alone])
    print("  " + "; ".join(notes), flush=True)


@contextmanager
def _service(args: argparse.Namespace) -> Iterator[tuple[int, int, OurService | None]]:
    """Port and process id of what is attacked, and the service if it is our own."""
    if args.port is not None:
        yield args.port, args.pid, None
        return
    with OurService(options=["--formats", ALL_FORMATS]) as server:
        server.await_ready()
        yield server.port, server.pid, server


def _attack(chosen: list[str], args: argparse.Namespace, end: float, report: Report) -> None:
    """Attack one service with everything that was chosen, until there is no time left."""
    if not chosen:
        return
    with _service(args) as (port, pid, server):
        watched(port, None, 3, pid)
        alone = [watched(port, None, args.seconds, pid)]
        for name in chosen:
            if _left(name, end, report):
                continue
            alone.append(watched(port, None, args.seconds / 8, pid))
            cost = cost_of(port, name, pid)
            seen = watched(port, name, args.seconds, pid)
            seen.cost_s = cost
            seen.restarts = int(server is not None and server.is_over)
            report.add(name, seen, alone)
            if seen.restarts:
                break
            time.sleep(0.5)
        if server is not None and server.log():
            print(server.log(4))


def _costs(chosen: list[str], args: argparse.Namespace) -> int:
    """Print what one request of each attack costs; 1 if any costs too much."""
    broken = 0
    with _service(args) as (port, pid, _):
        for name in chosen:
            statuses: list[int] = []
            costs = [cost_of(port, name, pid, statuses) for _ in range(_COST_ROUNDS)]
            broken += max(costs) > MOST_CPU_S
            seen = ", ".join(map(str, sorted(set(statuses))))
            print(
                f"{name:30} {max(costs):5.2f} s at most, {min(costs):5.2f} at least  {seen}",
                flush=True,
            )
    return min(1, broken)


if __name__ == "__main__":
    sys.exit(main())
