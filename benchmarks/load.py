"""Under load: how many answers are in time, and how accurate they are, against the best peer.

    python -m benchmarks.load [--quick] [--bundle FILE] [--peers fastapi,ray] [--budget-ms 50]

First the peers' capacities (the same OpenVINO network, both setups) name the best peer. Then open
loop, Poisson and bursty arrivals, at fractions and multiples of that capacity: our service with the
budget, the peer with nothing to say it to. In time is what the client sees. The load generator runs
on the same cores as the servers; it is one process of raw sockets, the same for all, and its
own share of the time is reported.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.driving.arrivals import Arrivals, schedule
from benchmarks.driving.open_loop import Sample, capacity, open_loop
from benchmarks.peers.registry import Peer, PeerEngine, Setup
from benchmarks.reporting.options import parser, report
from benchmarks.reporting.plotting import OURS, PEERS, axes, save
from benchmarks.reporting.results import Check, Report, ms, table
from benchmarks.servers.contest import Contest, add_options, contest
from benchmarks.servers.our_service import classify
from benchmarks.servers.processes import Server, ServerError

LOADS = (0.5, 0.8, 1.0, 1.5, 2.0, 4.0)
_GIVE_UP_S = 1.0


def capacities(it: Contest, seconds: float) -> dict[tuple[str, Setup], float]:
    """Requests per second of every peer in both setups."""
    found = {}
    for peer in it.peers:
        for setup in Setup:
            request = peer.request(it.body)
            try:
                with it.peer(peer, PeerEngine.OPENVINO, setup) as server:
                    server.await_ready(request)
                    found[peer.name, setup] = capacity(server.port, [request], seconds=seconds)
            except (ServerError, OSError) as error:
                print(f"{peer.title} ({setup}) failed: {error}", flush=True)
                continue
            print(f"{peer.title} ({setup}): {found[peer.name, setup]:.0f}/s", flush=True)
    if not found:
        raise SystemExit("No peer runs here, so there is nothing to compare with.")
    return found


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


def contend(
    it: Contest,
    ours: Server,
    peer: Peer,
    rival: Server,
    rate: float,
    seconds: float,
    rounds: int,
    budget_ms: float,
) -> list[dict[str, Any]]:
    """Every arrival process and load, on both in turns, with the same arrival times."""
    entrants = [
        ("san-serve", ours, classify(it.body, budget_ms=f"{budget_ms:g}")),
        (peer.title, rival, peer.request(it.body)),
    ]
    # Some servers are never quite idle; what they do then is not a queue.
    usual = {name: server.busy_share(1.0) for name, server, _ in entrants}
    found: list[dict[str, Any]] = []
    for number in range(rounds):
        for kind in Arrivals:
            for load in LOADS:
                times = schedule(kind, load * rate, seconds, seed=100 * number + int(10 * load))
                for name, server, request in entrants if len(found) % 4 == 0 else entrants[::-1]:
                    fact = offer(
                        server, request, times, seconds, budget_ms, it.accuracy, usual[name]
                    )
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
    goodputs = [r["goodput"] for r in cell]
    return {**mean, "low": min(goodputs), "high": max(goodputs)}


def tell(made: Report, rival: str, budget_ms: float) -> None:
    """The tables and the claim."""
    runs = made.data["runs"]
    for kind in Arrivals:
        rows = []
        for load in LOADS:
            mine, other = (gather(runs, kind, load, name) for name in ("san-serve", rival))
            rows.append(
                [
                    f"{load:g}x",
                    f"{100 * mine['on_time']:.1f}",
                    f"{100 * other['on_time']:.1f}",
                    f"{mine['goodput']:.1f} ({mine['low']:.1f} to {mine['high']:.1f})",
                    f"{other['goodput']:.1f} ({other['low']:.1f} to {other['high']:.1f})",
                    f"{mine['accuracy']:.3f}",
                    ms(mine["p99"]),
                    ms(other["p99"]),
                    f"{100 * mine['refused']:.1f}",
                ]
            )
        title = {"poisson": "Poisson", "bursty": "Bursty (gamma, CV² = 4)"}[kind]
        made.say(
            f"{title} arrivals, {budget_ms:g} ms budget; 1x is {made.data['rate']:.0f} requests/s, "
            f"the capacity of the best peer ({rival}). Goodput is the sum of expected accuracies "
            "over answers in time, per second."
        )
        head = ["load", "ours on time %", "peer on time %", "ours goodput/s", "peer goodput/s"]
        head += ["ours accuracy", "ours p99 ms", "peer p99 ms", "ours refused %"]
        made.say(table(head, rows))
    made.say(
        "The load generator shares the cores: it took "
        f"{100 * max(r['generator_cpu'] for r in runs):.0f} % of one at most; it sent "
        f"{max(r['lag_p99'] for r in runs):.1f} ms late at worst (p99 of a run), which counts as "
        "latency for all."
    )
    for kind in Arrivals:
        mine, other = (gather(runs, kind, 2.0, name) for name in ("san-serve", rival))
        # A peer that is never in time is given one answer, so that the ratio is a number.
        value = mine["goodput"] / max(other["goodput"], made.data["one_answer"])
        name = f"goodput at 2x over the best peer's, {kind}"
        made.check(Check(name, value, ">=", 2.5, "x"))


def draw(made: Report, rival: str, path: Path) -> None:
    """On-time rate and goodput over the load."""
    figure, plots = axes(2 * len(Arrivals), width=4.0)
    for index, kind in enumerate(Arrivals):
        rate, goodput = plots[2 * index], plots[2 * index + 1]
        for name, colour in (("san-serve", OURS), (rival, PEERS[1])):
            cells = [gather(made.data["runs"], kind, load, name) for load in LOADS]
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
    options.add_argument("--budget-ms", type=float, default=50.0)
    args = options.parse_args()
    made = report("load", "Under load", args)
    seconds, rounds = (1.0, 1) if args.quick else (3.0, 2)
    with contest(args) as it:
        found = capacities(it, 1.0 if args.quick else 3.0)
        (name, setup), rate = max(found.items(), key=lambda entry: entry[1])
        peer = next(peer for peer in it.peers if peer.name == name)
        print(f"The best peer is {peer.title} ({setup}): {rate:.0f}/s", flush=True)
        made.data["capacities"] = {f"{n} {s}": value for (n, s), value in found.items()}
        made.data["rate"] = rate
        made.data["one_answer"] = (it.accuracy or 1.0) / (seconds * rounds)
        with it.ours() as ours, it.peer(peer, PeerEngine.OPENVINO, setup) as rival:
            ours.await_ready()
            rival.await_ready(peer.request(it.body))
            made.data["runs"] = contend(
                it, ours, peer, rival, rate, seconds, rounds, args.budget_ms
            )
    tell(made, peer.title, args.budget_ms)
    made.write(lambda path: draw(made, peer.title, path))


if __name__ == "__main__":
    main()
