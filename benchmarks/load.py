"""Under load: how many answers are in time, and how accurate they are, against the peers.

    python -m benchmarks.load [--quick] [--bundle FILE] [--peers fastapi,ray] [--triton]
                              [--budget-ms 50]

First the peers' capacities (the same OpenVINO network, both setups): the highest is the unit of
load. Then open loop, Poisson and bursty arrivals, at fractions and multiples of it: our service
with the budget, each peer in its better setup. The peers cannot be told a budget and queue without
a limit, as they do by default. Triton is told to shed: it refuses what has waited for so long that
its answer would be late. In time is what the client sees. The load generator runs on the same cores
as the servers; it is one process of raw sockets, the same for all, and its own share of the time is
reported.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.driving.arrivals import Arrivals, schedule
from benchmarks.driving.open_loop import Sample, capacity, open_loop
from benchmarks.peers.registry import Peer, PeerEngine, Setup
from benchmarks.peers.running import PeerServer
from benchmarks.peers.triton import TRITON, Triton
from benchmarks.reporting.options import parser, report
from benchmarks.reporting.plotting import OURS, PEERS, axes, save
from benchmarks.reporting.results import Check, Report, ms, table
from benchmarks.servers.contest import Contest, add_options, contest
from benchmarks.servers.our_service import classify
from benchmarks.servers.processes import Server, ServerError

LOADS = (0.5, 0.8, 1.0, 1.5, 2.0, 4.0)
OUR_NAME = "san-serve"
_GIVE_UP_S = 1.0


def rival(
    it: Contest, peer: Peer, setup: Setup, longest_wait_ms: float | None = None
) -> PeerServer | Triton:
    """A peer, not yet started; the longest wait is for Triton."""
    if peer is TRITON:
        return Triton(it.env, it.export, setup, longest_wait_ms, it.peers_dir)
    return it.peer(peer, PeerEngine.OPENVINO, setup)


def capacities(
    it: Contest, peers: Sequence[Peer], seconds: float
) -> dict[tuple[str, Setup], float]:
    """Requests per second of every peer in both setups."""
    found = {}
    for peer in peers:
        for setup in Setup:
            request = peer.request(it.body)
            try:
                with rival(it, peer, setup) as server:
                    server.await_ready(request)
                    found[peer.name, setup] = capacity(server.port, [request], seconds=seconds)
            except (ServerError, OSError) as error:
                print(f"{peer.title} ({setup}) failed: {error}", flush=True)
                continue
            print(f"{peer.title} ({setup}): {found[peer.name, setup]:.0f}/s", flush=True)
    if not found:
        raise SystemExit("No peer runs here, so there is nothing to compare with.")
    return found


def best_setups(found: dict[tuple[str, Setup], float]) -> dict[str, tuple[Setup, float]]:
    """The setup of every peer that serves most, and how much."""
    best: dict[str, tuple[Setup, float]] = {}
    for (name, setup), rate in found.items():
        if name not in best or rate > best[name][1]:
            best[name] = (setup, rate)
    return best


def longest_wait_ms(budget_ms: float, setup: Setup, rate: float) -> float:
    """How long a request may wait in a queue and still be answered within the budget.

    Twice the mean time of an image is left for its own run, which is longer at times.
    """
    side_by_side = (os.cpu_count() or 1) if setup is Setup.THROUGHPUT else 1
    return max(1.0, budget_ms - 2 * 1000 * side_by_side / rate)


def measure(
    samples: Sequence[Sample], seconds: float, budget_ms: float, fixed: float
) -> dict[str, Any]:
    """What a load came to; `fixed` is the accuracy of a server that does not tell it."""
    on_time = [sample for sample in samples if sample.on_time(budget_ms)]
    accuracies, resolutions = [], Counter[str]()
    for sample in on_time:
        said = sample.answer and sample.answer.header("x-san-expected-accuracy")
        accuracies.append(float(said) if said else fixed)
        resolutions[(sample.answer and sample.answer.header("x-san-resolution")) or "fixed"] += 1
    answered = [s.latency_ms for s in samples if s.status == 200] or [float("nan")]
    return {
        "offered": len(samples),
        "on_time": len(on_time) / len(samples),
        "goodput": sum(accuracies) / seconds,
        "accuracy": float(np.mean(accuracies)) if accuracies else 0.0,
        "p50": float(np.percentile(answered, 50)),
        "p99": float(np.percentile(answered, 99)),
        "refused": sum(s.status in (429, 503) for s in samples) / len(samples),
        "gave_up": sum(s.status <= 0 for s in samples) / len(samples),
        "lag_p99": float(np.percentile([s.lag_ms for s in samples], 99)),
        "resolutions": dict(resolutions),
    }


def offer(
    server: Server,
    request: bytes,
    times: list[float],
    seconds: float,
    budget_ms: float,
    fixed: float,
    usual: float,
) -> dict[str, Any]:
    """One load on one server, which starts and ends idle."""
    cpu = time.process_time()
    samples = open_loop(server.port, times, [request], give_up_s=_GIVE_UP_S)
    cpu = time.process_time() - cpu
    found = measure(samples, seconds, budget_ms, fixed)
    found["generator_cpu"] = cpu / (seconds + _GIVE_UP_S)
    found["idle_after"] = server.await_idle(usual)
    return found


Entrant = tuple[str, Server, bytes]
"""A server's title, the server, and the request it is sent."""


def contend(
    entrants: Sequence[Entrant],
    rate: float,
    seconds: float,
    rounds: int,
    budget_ms: float,
    fixed: float,
) -> list[dict[str, Any]]:
    """Every arrival process and load, on all in turns, with the same arrival times."""
    # Some servers are never quite idle; what they do then is not a queue.
    usual = {name: server.busy_share(1.0) for name, server, _ in entrants}
    found: list[dict[str, Any]] = []
    cells = [(n, kind, load) for n in range(rounds) for kind in Arrivals for load in LOADS]
    for turn, (number, kind, load) in enumerate(cells):
        times = schedule(kind, load * rate, seconds, seed=100 * number + int(10 * load))
        for name, server, request in entrants if turn % 2 == 0 else entrants[::-1]:
            fact = offer(server, request, times, seconds, budget_ms, fixed, usual[name])
            found.append({"server": name, "arrivals": str(kind), "load": load, **fact})
            print(
                f"  {kind} {load:g}x {name}: {100 * fact['on_time']:.1f} % on time, "
                f"goodput {fact['goodput']:.1f}/s, p99 {fact['p99']:.0f} ms",
                flush=True,
            )
    return found


def gather(runs: list[dict[str, Any]], kind: str, load: float, server: str) -> dict[str, Any]:
    """The rounds of one cell together."""
    cell = [r for r in runs if (r["arrivals"], r["load"], r["server"]) == (kind, load, server)]
    keys = ("on_time", "goodput", "accuracy", "p99", "refused", "gave_up")
    mean = {key: float(np.mean([r[key] for r in cell])) for key in keys}
    # A round without an answer in time has no accuracy.
    mean["accuracy"] = float(np.mean([r["accuracy"] for r in cell if r["on_time"]] or [0.0]))
    goodputs = [r["goodput"] for r in cell]
    return {**mean, "low": min(goodputs), "high": max(goodputs)}


def rivals(runs: list[dict[str, Any]]) -> list[str]:
    """The peers that took part, in the order of the tables."""
    return [name for name in dict.fromkeys(run["server"] for run in runs) if name != OUR_NAME]


def tell(made: Report, best: str, budget_ms: float) -> None:
    """The tables and the claim."""
    runs = made.data["runs"]
    names = [OUR_NAME, *rivals(runs)]
    for kind in Arrivals:
        rows = []
        for load in LOADS:
            for name in names:
                cell = gather(runs, kind, load, name)
                rows.append(
                    [
                        f"{load:g}x",
                        name,
                        f"{100 * cell['on_time']:.1f}",
                        f"{cell['goodput']:.1f} ({cell['low']:.1f} to {cell['high']:.1f})",
                        f"{cell['accuracy']:.3f}" if cell["on_time"] else "-",
                        ms(cell["p99"]),
                        f"{100 * cell['refused']:.1f}",
                    ]
                )
        title = {"poisson": "Poisson", "bursty": "Bursty (gamma, CV² = 4)"}[kind]
        made.say(
            f"{title} arrivals, {budget_ms:g} ms budget; 1x is {made.data['rate']:.0f} requests/s, "
            f"the capacity of the best peer ({best}). Goodput is the sum of expected accuracies "
            "over answers in time, per second."
        )
        head = ["load", "server", "on time %", "goodput/s", "accuracy", "p99 ms", "refused %"]
        made.say(table(head, rows))
    if made.data["longest_wait_ms"] is not None:
        made.say(
            f"Triton refuses what has waited for {made.data['longest_wait_ms']:.0f} ms; the other "
            "peers queue without a limit, as they do by default."
        )
    made.say(
        "The load generator shares the cores: it took "
        f"{100 * max(r['generator_cpu'] for r in runs):.0f} % of one at most; it sent "
        f"{max(r['lag_p99'] for r in runs):.1f} ms late at worst (p99 of a run), which counts as "
        "latency for all."
    )
    for kind in Arrivals:
        mine = gather(runs, kind, 2.0, OUR_NAME)["goodput"]
        other = max(gather(runs, kind, 2.0, name)["goodput"] for name in rivals(runs))
        # A peer that is never in time is given one answer, so that the ratio is a number.
        value = mine / max(other, made.data["one_answer"])
        name = f"goodput at 2x over the best peer's, {kind}"
        made.check(Check(name, value, ">=", 2.5, "x"))


def draw(made: Report, path: Path) -> None:
    """On-time rate and goodput over the load."""
    figure, plots = axes(2 * len(Arrivals), width=4.0)
    runs = made.data["runs"]
    for index, kind in enumerate(Arrivals):
        rate, goodput = plots[2 * index], plots[2 * index + 1]
        for name, colour in zip((OUR_NAME, *rivals(runs)), (OURS, *PEERS), strict=False):
            cells = [gather(runs, kind, load, name) for load in LOADS]
            rate.plot(LOADS, [100 * c["on_time"] for c in cells], "o-", color=colour, label=name)
            goodput.plot(LOADS, [c["goodput"] for c in cells], "o-", color=colour)
            low, high = [c["low"] for c in cells], [c["high"] for c in cells]
            goodput.fill_between(LOADS, low, high, color=colour, alpha=0.2)
        rate.set(xlabel="load / best peer's capacity", ylabel="on time, %", title=str(kind))
        goodput.set(xlabel="load / best peer's capacity", ylabel="goodput/s", title=str(kind))
    plots[0].legend(frameon=False)
    save(figure, path)


def main() -> None:
    """Run it."""
    options = parser(__doc__.split("\n")[0])
    add_options(options)
    options.add_argument("--triton", action="store_true", help="Triton too: a wheel of 400 MB")
    options.add_argument("--budget-ms", type=float, default=50.0)
    args = options.parse_args()
    made = report("load", "Under load", args)
    seconds, rounds = (1.0, 1) if args.quick else (3.0, 2)
    with contest(args) as it, contextlib.ExitStack() as running:
        peers = [*it.peers, *([TRITON] if args.triton else [])]
        found = capacities(it, peers, 1.0 if args.quick else 3.0)
        setups = best_setups(found)
        title, rate = max(
            ((peer.title, setups[peer.name][1]) for peer in peers if peer.name in setups),
            key=lambda entry: entry[1],
        )
        print(f"The best peer is {title}: {rate:.0f}/s", flush=True)
        made.data["capacities"] = {f"{n} {s}": value for (n, s), value in found.items()}
        made.data["rate"] = rate
        made.data["one_answer"] = (it.accuracy or 1.0) / (seconds * rounds)
        wait = (
            longest_wait_ms(args.budget_ms, *setups[TRITON.name]) if TRITON.name in setups else None
        )
        made.data["longest_wait_ms"] = wait
        ours = running.enter_context(it.ours())
        ours.await_ready()
        entrants: list[Entrant] = [
            (OUR_NAME, ours, classify(it.body, budget_ms=f"{args.budget_ms:g}"))
        ]
        for peer in peers:
            if peer.name in setups:
                server = running.enter_context(rival(it, peer, setups[peer.name][0], wait))
                server.await_ready(peer.request(it.body))
                entrants.append((peer.title, server, peer.request(it.body)))
        made.data["runs"] = contend(entrants, rate, seconds, rounds, args.budget_ms, it.accuracy)
    tell(made, title, args.budget_ms)
    made.write(lambda path: draw(made, path))


if __name__ == "__main__":
    main()
