"""One client and a 500 px JPEG: our service against what people would use instead.

    python -m benchmarks.end_to_end [--quick] [--bundle FILE] [--peers fastapi,ray]

Every peer serves the same network at 224 px, once with eager torch and once with the same OpenVINO
graph. Peer by peer, its servers and ours run at the same time and are asked in turns, so that each
ratio is taken within seconds; who is not asked is idle. What network and decoder give with
nothing around them, an image per core at a time, is measured beside each peer: none can give more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.driving.entrants import CLIENTS, Entrant, Pace, take_turns, throughput, usual
from benchmarks.peers.environments import version
from benchmarks.peers.registry import Peer, PeerEngine, Setup
from benchmarks.reporting.options import parser, report
from benchmarks.reporting.plotting import OURS, PEERS, axes, plain_numbers, save
from benchmarks.reporting.results import Check, Report, ratio, summarise, table
from benchmarks.servers.contest import Contest, add_options, contest
from benchmarks.servers.our_service import OurService, classify
from benchmarks.servers.own_parts import Parts, most_per_s
from benchmarks.servers.processes import ServerError
from san_core.frontier import OperatingPoint
from service.runtime.cores import available_cores


def ceiling(it: Contest) -> dict[str, list[Callable[[], object]]]:
    """What keeps every core busy with the network alone, and with decoding as well."""
    parts = Parts(it.bundle, PeerEngine.OPENVINO, threads=1)
    point = OperatingPoint(it.resolution)
    networks = [parts.network(point) for _ in range(available_cores())]
    pixels = parts.decode(it.body, it.resolution)
    return {
        "network": [partial(network.run, pixels) for network in networks],
        "with decoding": [
            lambda network=network: network.run(parts.decode(it.body, it.resolution))
            for network in networks
        ],
    }


def duel(
    peer: Peer,
    services: Sequence[OurService],
    per_core: OurService,
    it: Contest,
    pace: Pace,
    alone: dict[str, list[Callable[[], object]]],
) -> list[dict[str, Any]]:
    """One peer against our services at the same resolution, in the same minutes.

    `per_core` is the first of them with a process per core: requests per second are those of the
    better of the two, as they are of a peer's two setups.
    """
    body, found = it.body, []
    request = classify(body, resolution=it.resolution)
    ours = [Entrant(s.name, s, request) for s in services]
    narrow, broad = ([Entrant(s.name, s, request) for s in (per_core, *services)] for _ in range(2))
    with contextlib.ExitStack() as running:
        entrants = []
        for engine in PeerEngine:
            server = running.enter_context(it.peer(peer, engine, Setup.LATENCY))
            server.await_ready(peer.request(body))
            entrants.append(Entrant(str(engine), server, peer.request(body)))
        take_turns([*ours, *entrants], pace)
        throughput([*narrow, entrants[-1]], pace)
    with it.peer(peer, PeerEngine.OPENVINO, Setup.THROUGHPUT) as server:
        server.await_ready(peer.request(body))
        wide = Entrant("throughput", server, peer.request(body))
        throughput([*broad, wide], pace)
    most = {name: most_per_s(calls, pace.capacity_s / 2) for name, calls in alone.items()}
    best, busy = max((entrants[-1], narrow), (wide, broad), key=lambda setup: usual(setup[0]))
    per_s = usual(best)
    (own, *others), (many, one, *others_busy) = ours, busy
    own_busy = max(one, many, key=usual)
    for entrant in entrants:
        compiled = entrant.name == PeerEngine.OPENVINO
        found.append(
            {
                "peer": peer.title,
                "version": version(peer, it.peers_dir),
                "engine": entrant.name,
                "latency_ms": asdict(summarise(entrant.rounds)),
                "ours_ms": asdict(summarise(own.rounds)),
                "ratio": ratio(entrant.rounds, own.rounds),
                "per_s": {
                    "latency setup": entrant.per_s,
                    "throughput setup": wide.per_s if compiled else [],
                },
                "best_per_s": best.per_s if compiled else None,
                "alone_per_s": most if compiled else {},
                "ours_per_s": own_busy.per_s,
                "ours_per_s_by_setup": {"one process": one.per_s, "one per core": many.per_s},
                "best_cpu_ms": float(np.median(best.cpu_ms)) if compiled else None,
                "ours_cpu_ms": float(np.median(own_busy.cpu_ms)),
                "throughput_ratio": usual(own_busy) / per_s if compiled else None,
                "others": {
                    other.name: {
                        "latency_ms": asdict(summarise(other.rounds)),
                        "ratio": ratio(entrant.rounds, other.rounds),
                        "per_s": other_busy.per_s,
                        "throughput_ratio": usual(other_busy) / per_s,
                    }
                    for other, other_busy in zip(others, others_busy, strict=True)
                }
                if compiled
                else {},
            }
        )
        print(
            f"{peer.title} {entrant.name}: p50 {found[-1]['latency_ms']['p50']:.2f} ms, ours "
            f"{found[-1]['ours_ms']['p50']:.2f} ms, ratio {found[-1]['ratio'][0]:.2f}"
            + (f"; {per_s:.0f}/s, ours {usual(own_busy):.0f}/s" if compiled else ""),
            flush=True,
        )
    return found


def every_resolution(
    services: Sequence[OurService], it: Contest, pace: Pace
) -> list[dict[str, Any]]:
    """Our service at each point of its frontier, in turns."""
    entrants, labels = [], []
    for service in services:
        for point in service.points():
            if point.frontier and point.resolution not in [r for s, r, _ in labels if s is service]:
                request = classify(it.body, resolution=point.resolution)
                entrants.append(Entrant(service.name, service, request))
                labels.append((service, point.resolution, point))
    take_turns(entrants, Pace(pace.rounds, pace.block_s / 2, pace.block_requests, 0))
    throughput(entrants, Pace(0, 0, 0, pace.capacity_s / 2))
    return [
        {
            "service": service.name,
            "resolution": resolution,
            "precision": point.precision,
            "accuracy": point.accuracy,
            "latency_ms": asdict(summarise(entrant.rounds)),
            "per_s": entrant.per_s,
            "cpu_ms": entrant.cpu_ms,
        }
        for entrant, (service, resolution, point) in zip(entrants, labels, strict=True)
    ]


def tell(made: Report, it: Contest) -> None:
    """The tables and the claims."""
    rows = [
        [
            f"{fact['resolution']} ({fact['precision']})",
            "-" if fact["accuracy"] is None else f"{fact['accuracy']:.3f}",
            *_cells(fact["latency_ms"]),
            _with_spread(fact["per_s"]),
            f"{np.median(fact['cpu_ms']):.1f}",
        ]
        for fact in made.data["ours"]
    ]
    made.say("Our service, pinned to each resolution of its frontier; one client, a 500 px JPEG.")
    head = ["resolution", "top-1", "p50 ms (rounds)", "p95 ms", "p99 ms", "requests/s"]
    made.say(table([*head, "CPU ms/request"], rows))
    duels = made.data["duels"]
    if not duels:
        return
    rows = [
        [
            f"{fact['peer']} {fact['version']}, {fact['engine']}",
            *_cells(fact["latency_ms"]),
            f"{fact['ours_ms']['p50']:.2f}",
            "{:.2f} ({:.2f} to {:.2f})".format(*fact["ratio"]),
            "-" if fact["best_per_s"] is None else _with_spread(fact["best_per_s"]),
            "-" if fact["best_per_s"] is None else _with_spread(fact["ours_per_s"]),
            "-" if fact["best_per_s"] is None else f"{fact['best_cpu_ms']:.1f}",
            "-" if fact["best_per_s"] is None else f"{fact['ours_cpu_ms']:.1f}",
            " / ".join(f"{per_s:.0f}" for per_s in fact["alone_per_s"].values()) or "-",
        ]
        for fact in duels
    ]
    made.say(
        f"Peers with the same network at {it.resolution} px, float on both sides; *ours* is "
        f"measured in turns with each. Requests per second: {CLIENTS} connections that always "
        "wait for an answer; everybody gets the better of one worker with all cores and one worker "
        "per core. *Alone*: images per second of the network, and of network and decoder, with "
        "nothing around them."
    )
    head = ["peer", "p50 ms (rounds)", "p95 ms", "p99 ms", "ours p50", "times slower (rounds)"]
    made.say(
        table([*head, "requests/s", "ours/s", "CPU ms/request", "ours CPU ms", "alone/s"], rows)
    )
    eager = min(f["ratio"][0] for f in duels if f["engine"] == PeerEngine.EAGER)
    compiled = min(f["ratio"][0] for f in duels if f["engine"] == PeerEngine.OPENVINO)
    most = max((f for f in duels if f["best_per_s"]), key=lambda f: np.median(f["best_per_s"]))
    made.check(Check("p50 of the fastest peer with eager torch, over ours", eager, ">=", 1.5, "x"))
    made.check(Check("p50 of the fastest peer with OpenVINO, over ours", compiled, ">=", 1.2, "x"))
    made.check(Check("throughput over the best peer's", most["throughput_ratio"], ">=", 1.3, "x"))
    for name, other in most["others"].items():
        fastest = min(f["others"][name]["ratio"][0] for f in duels if f["others"])
        claim = f"p50 of the fastest peer with OpenVINO, over {name}"
        made.check(Check(claim, fastest, ">=", 1.2, "x"))
        claim = f"throughput of {name} over the best peer's"
        made.check(Check(claim, other["throughput_ratio"], ">=", 1.3, "x"))


def _with_spread(per_s: Sequence[float]) -> str:
    return f"{np.median(per_s):.0f} ({min(per_s):.0f} to {max(per_s):.0f})"


def _cells(summary: dict[str, float]) -> list[str]:
    spread = f"{summary['p50']:.2f} ({summary['low']:.2f} to {summary['high']:.2f})"
    return [spread, f"{summary['p95']:.2f}", f"{summary['p99']:.2f}"]


def draw(made: Report, path: Path) -> None:
    """Bars: every peer, and ours at each resolution."""
    figure, (left, right) = axes(2, width=6.0, height=5.0)
    bars = [
        (f"{f['peer']}, {f['engine']}", f["latency_ms"], PEERS[f["engine"] == PeerEngine.OPENVINO])
        for f in made.data["duels"]
    ]
    bars += [
        (f"san-serve, {f['resolution']} {f['precision']}", f["latency_ms"], OURS)
        for f in made.data["ours"]
    ]
    bars.sort(key=lambda bar: -bar[1]["p50"])
    left.barh([b[0] for b in bars], [b[1]["p50"] for b in bars], color=[b[2] for b in bars])
    left.set(xscale="log", xlabel="p50, ms (one client)")
    plain_numbers(left.xaxis)
    left.tick_params(axis="y", labelsize=7)
    done = [f for f in made.data["duels"] if f["best_per_s"]]
    names, speeds = [f["peer"] for f in done], [np.median(f["best_per_s"]) for f in done]
    mine = [np.median(f["ours_per_s"]) for f in done]
    if done:
        right.bar(names, speeds, color=PEERS[1], label="peer, OpenVINO", width=0.4, align="edge")
        right.bar(names, mine, color=OURS, label="san-serve", width=-0.4, align="edge")
        right.set(ylabel="requests/s at 224 px")
        right.tick_params(axis="x", labelsize=8)
        right.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    save(figure, path)


def main() -> None:
    """Run it."""
    options = parser(__doc__.split("\n")[0])
    add_options(options)
    args = options.parse_args()
    made = report("end_to_end", "End to end, one client", args)
    pace = Pace(2, 1.0, 5, 1.0) if args.quick else Pace(5, 2.0, 150, 4.0)
    made.data |= {"ours": [], "duels": [], "failed": {}}
    with contest(args) as it, contextlib.ExitStack() as running:
        ours = running.enter_context(it.ours("--precision", "float")).await_ready()
        services = [ours]
        if it.has_int8:
            # Started after the first is ready: each measures this host, and must be alone for it.
            int8 = it.ours("--precision", "int8", name="san-serve int8")
            services.append(running.enter_context(int8).await_ready())
        made.data["ours"] = every_resolution(services, it, pace)
        workers = str(available_cores())
        per_core = it.ours("--precision", "float", "--workers", workers, name="san-serve per core")
        running.enter_context(per_core).await_ready()
        alone = ceiling(it)
        for peer in it.peers:
            print(f"{peer.title} …", flush=True)
            try:
                made.data["duels"] += duel(peer, services, per_core, it, pace, alone)
            except (ServerError, OSError) as error:
                # One peer that does not start here must not cost the others their figures.
                made.data["failed"][peer.title] = str(error)
                print(f"{peer.title} failed: {error}", flush=True)
        if made.data["failed"]:
            made.say("Not measured: " + ", ".join(made.data["failed"]) + " (see the JSON).")
        tell(made, it)
    made.write(lambda path: draw(made, path))


if __name__ == "__main__":
    main()
