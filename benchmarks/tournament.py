"""The scheduler against its rivals: every trace in simulation, eight of them on the real service.

    python -m benchmarks.tournament                              in simulation; minutes, any machine
    python -m benchmarks.tournament --real [--previous CHECKOUT] servers on an idle machine

In simulation everybody runs on the same model of a machine, and the clairvoyant bound says what
knowing all arrivals could buy at most (`service/replay/bound.py` says how). On the real service the
same arrival times go, in turns, to our service, to the fixed 224 px FastAPI peer and, if a checkout
is named, to an earlier release. *Per offered* is the sum of the expected accuracies of answers that
came in time, over all requests offered: refused and late ones count 0.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from benchmarks.driving.open_loop import capacity, open_loop
from benchmarks.load import measure
from benchmarks.peers.registry import PeerEngine, Setup
from benchmarks.reporting.options import parser, report
from benchmarks.reporting.results import Report, table
from benchmarks.servers.contest import add_options, contest
from benchmarks.servers.earlier import Earlier
from benchmarks.servers.our_service import classify
from benchmarks.servers.processes import Server
from san_core.preprocessing import ImageHeader
from service.replay.bound import clairvoyant
from service.replay.machine import HostModel, reference
from service.replay.running import POLICIES, replay
from service.replay.simulation import Job
from service.replay.traces import MIXED, SCENARIOS, Arrival, scenario
from service.request.request import Request
from service.request.terms import Terms

REAL = (
    "poisson-0.5", "poisson-1", "poisson-2", "poisson-4", "gamma4-0.5", "gamma4-1", "gamma4-2",
    "mixed-1",
)  # fmt: skip
_BUDGET_MS = 50.0


def simulate(made: Report, seconds: float, seeds: int) -> None:
    """Every scenario with every policy."""
    rows, found = [], {}
    for name in SCENARIOS:
        traces = [scenario(name, seconds, seed) for seed in range(1, seeds + 1)]
        cells = {}
        for policy in POLICIES:
            results = [replay(trace, policy, seed=i) for i, trace in enumerate(traces, 1)]
            cells[policy] = sum(r.per_offered for r in results) / seeds
            if policy == "san-serve":
                kept = sum(r.in_time for r in results) / sum(
                    max(1, r.offered - r.refused) for r in results
                )
        bound = sum(map(_bound, traces)) / seeds if not name.startswith(("mixed", "sizes")) else 0.0
        found[name] = {**cells, "clairvoyant": bound, "kept": kept}
        cells_told = [f"{cells[policy]:.3f}" for policy in POLICIES]
        rows.append([name, f"{bound:.3f}" if bound else "-", *cells_told, f"{100 * kept:.1f}"])
        print("  ".join(rows[-1]), flush=True)
    made.data["simulated"] = found
    made.say("In simulation, per offered request; *kept* is our share of the admitted in time, %.")
    made.say(table(["trace", "clairvoyant", *POLICIES, "kept"], rows))


def _bound(trace: list[Arrival]) -> float:
    measured, listings = reference()
    job = Job(Request("", Terms()), trace[0], ImageHeader("JPEG", 500, 375))
    return clairvoyant(trace, job, measured, listings, HostModel())


def real(made: Report, args: Any, seconds: float, rounds: int) -> None:
    """Eight scenarios on servers, in turns."""
    args.peers = "fastapi"
    with contest(args) as it:
        (peer,) = it.peers
        earlier = Earlier(args.previous) if args.previous else None
        with it.ours() as ours, it.peer(peer, PeerEngine.OPENVINO, Setup.LATENCY) as rival:
            if earlier is not None:
                earlier.start()
            try:
                ours.await_ready()
                plain = peer.request(it.body)
                rival.await_ready(plain)
                servers: dict[str, Server] = {"san-serve": ours, "fixed 224": rival}
                if earlier is not None:
                    servers["earlier"] = earlier.await_ready()
                rate = capacity(rival.port, [plain], seconds=2.0)
                made.data["rate"] = rate
                print(f"1x is {rate:.0f}/s", flush=True)
                made.data["real"] = _turns(
                    servers, it.body, plain, it.accuracy, rate, seconds, rounds
                )
            finally:
                if earlier is not None:
                    earlier.stop()
    names = list(servers)
    rows = []
    for trace in REAL:
        cells = made.data["real"][trace]
        row = [trace]
        for name in names:
            row += [f"{cells[name]['per_offered']:.3f}", f"{100 * cells[name]['kept']:.1f}"]
        rows.append(row)
    head = ["trace"]
    for name in names:
        head += [name, "kept %"]
    made.say(f"On servers, per offered request; 1x is {rate:.0f} requests/s, what the peer holds.")
    made.say(table(head, rows))


def _turns(
    servers: dict[str, Server],
    body: bytes,
    plain: bytes,
    fixed: float,
    rate: float,
    seconds: float,
    rounds: int,
) -> dict[str, Any]:
    from service.replay import traces

    traces.UNIT_PER_S = rate
    found: dict[str, Any] = {}
    for number in range(rounds):
        for trace in REAL:
            arrivals = scenario(trace, seconds, seed=10 + number)
            times = [a.at_ms / 1000 for a in arrivals]
            names = list(servers) if number % 2 == 0 else list(servers)[::-1]
            for name in names:
                chance = random.Random(1000 + 10 + number)
                budgets = [
                    chance.choice(MIXED) if trace.startswith("mixed") else _BUDGET_MS for _ in times
                ]
                requests = [
                    plain if name == "fixed 224" else classify(body, budget_ms=f"{b:g}")
                    for b in budgets
                ]
                samples = open_loop(servers[name].port, times, iter(requests), give_up_s=1.0)
                samples.sort(key=lambda s: s.due)
                good = admitted = in_time = 0.0
                for sample, budget in zip(samples, budgets, strict=True):
                    fact = measure([sample], seconds, budget, fixed)
                    good += fact["goodput"] * seconds
                    in_time += fact["on_time"]
                    admitted += fact["refused"] == 0
                cell = found.setdefault(trace, {}).setdefault(
                    name, {"per_offered": 0.0, "kept": 0.0}
                )
                cell["per_offered"] += good / len(samples) / rounds
                cell["kept"] += in_time / max(1.0, admitted) / rounds
                servers[name].await_idle(0.3)
            told = "  ".join(
                f"{n} {c['per_offered']:.3f} ({100 * c['kept']:.1f} %)"
                for n, c in found[trace].items()
            )
            print(f"{trace}: {told}", flush=True)
    return found


def main() -> None:
    """Run one of the two."""
    options = parser(__doc__.split("\n")[0])
    add_options(options)
    options.add_argument("--real", action="store_true", help="on servers instead of in simulation")
    options.add_argument("--previous", type=Path, help="checkout of an earlier release to compare")
    args = options.parse_args()
    name = "tournament_real" if args.real else "tournament"
    made = report(name, "Tournament", args)
    if args.real:
        real(made, args, 1.0 if args.quick else 3.0, 1 if args.quick else 3)
    else:
        simulate(made, 2.0 if args.quick else 6.0, 1 if args.quick else 2)
    made.write()


if __name__ == "__main__":
    main()
