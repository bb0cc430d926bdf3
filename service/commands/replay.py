"""`san replay`: what another policy, more traffic or other cores would do."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from service.errors import SettingsError

if TYPE_CHECKING:
    from service.latency.curves import Measurements
    from service.replay.machine import HostModel
    from service.replay.traces import Arrival

HELP = """Replay traffic on a model of a machine: plan capacity, compare policies.

The traffic is a recording or a synthetic scenario. The scheduler is the service's own, on a
simulated clock; nothing is classified."""
EXAMPLES = """examples:
  san serve --record traffic.jsonl           record what arrives
  san replay traffic.jsonl --speed 2         what would twice the traffic do?
  san replay gamma4-2 --policy san-serve --policy fixed --cores 4
  san replay poisson-1 --budget-ms 20
  san replay bursty-1 --replicas 16          which router keeps most promises?
  san replay bursty-0.7 --replicas 16 --paces 1,1,1,2.5 --router headroom
  san replay bursty-0.7 --replicas 16 --routers 16"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "trace",
        metavar="TRACE",
        help="a recording, or a synthetic scenario and its load, such as poisson-1 or gamma4-2",
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME",
        help="policy to try, such as san-serve or fixed; repeat it for several (default: all)",
    )
    parser.add_argument(
        "--host",
        type=Path,
        metavar="FILE",
        help="times of a host: latency-….json from its cache folder (default: a 2-core host)",
    )
    parser.add_argument(
        "--speed",
        type=float,
        default=1.0,
        metavar="X",
        help="multiply the traffic by this (default: 1)",
    )
    parser.add_argument(
        "--cores", type=int, metavar="N", help="cores of the machine (default: those of the host)"
    )
    parser.add_argument(
        "--budget-ms",
        type=float,
        metavar="MS",
        help="the same budget for all requests (default: as in the trace)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=8.0,
        metavar="S",
        help="length of a scenario (default: 8)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of a scenario (default: 1)"
    )
    parser.add_argument(
        "--replicas",
        type=int,
        default=1,
        metavar="N",
        help="machines behind a router; the traffic grows with them (default: 1)",
    )
    parser.add_argument(
        "--router",
        action="append",
        metavar="NAME",
        help="router to try, such as headroom; repeat it for several (default: all)",
    )
    parser.add_argument(
        "--routers",
        type=int,
        default=1,
        metavar="N",
        help="routers that share the traffic; each knows only its own answers (default: 1)",
    )
    parser.add_argument(
        "--paces",
        default="1",
        metavar="X,X",
        help="how slow each replica is, in turn: 1,1,1,2.5 makes one in four slow (default: 1)",
    )


def _load(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise SettingsError(f"bursty-{text}: a number must follow, as in bursty-1.") from error


def _trace(args: argparse.Namespace, path: Path) -> list[Arrival]:
    """The requests of a scenario: their rate grows with the number of replicas."""
    from service.replay.fleet import bursty
    from service.replay.traces import faster, read, scenario

    if path.is_file():
        return read(path)
    if path.suffix[1:].isalpha() or len(path.parts) > 1:
        raise ValueError(f"There is no recording {path}.")
    if args.trace.startswith("bursty-"):
        load = _load(args.trace.removeprefix("bursty-"))
        return bursty(args.replicas, load, args.seconds, args.seed)
    drawn = scenario(args.trace, args.seconds * args.replicas, args.seed)
    return faster(drawn, args.replicas)


def _fleet(
    args: argparse.Namespace,
    trace: list[Arrival],
    host: HostModel,
    measured: Measurements | None,
) -> int:
    """Print a table and a plot per router."""
    from service.fleet.routing import ROUTERS
    from service.replay import report
    from service.replay.fleet import make_fleet

    unknown = set(args.router or ()) - set(ROUTERS)
    if unknown:
        raise SettingsError(
            f"There is no router {unknown.pop()!r}; known are {', '.join(ROUTERS)}."
        )
    if args.replicas < 1 or args.routers < 1:
        raise SettingsError("--replicas and --routers: at least one of each.")
    try:
        paces = tuple(float(pace) for pace in args.paces.split(","))
    except ValueError as error:
        raise SettingsError("--paces: numbers with commas, such as 1,1,1,2.5.") from error
    results = {
        router: make_fleet(
            args.replicas, router, host, measured, paces, args.seed, args.routers
        ).run(trace)
        for router in args.router or ROUTERS
    }
    sys.stdout.write(report.table(results, "router") + "\n\n" + report.plot(results) + "\n")
    return 0


def run(args: argparse.Namespace) -> int:
    """Print a table and a plot per policy."""
    # Late: `san --help` needs none of it.
    from service.latency.curves import Measurements
    from service.replay import report
    from service.replay.machine import HostModel
    from service.replay.running import POLICIES, replay
    from service.replay.traces import faster

    unknown = set(args.policy or ()) - set(POLICIES)
    if unknown:
        raise SettingsError(
            f"There is no policy {unknown.pop()!r}; known are {', '.join(POLICIES)}."
        )
    path = Path(args.trace)
    try:
        trace = _trace(args, path)
        measured = None
        if args.host is not None:
            import orjson

            measured = Measurements.from_json(orjson.loads(args.host.read_bytes()))
            if not measured.curves:
                raise ValueError(f"{args.host} has no times: it was written on a busy machine.")
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(str(error)) from error
    if args.budget_ms is not None:
        trace = [replace(arrival, budget_ms=args.budget_ms) for arrival in trace]
    trace = sorted(faster(trace, args.speed), key=lambda arrival: arrival.at_ms)
    host = HostModel()
    if args.cores is not None:
        decode = max(1, args.cores // 4)
        engine = args.cores if args.cores <= 4 else args.cores - decode
        # Measured with two threads; a run takes as many core-milliseconds on more.
        host = replace(host, cores=args.cores, engine_threads=engine, decode_threads=decode)
    if args.replicas > 1 or args.router or args.routers != 1:
        return _fleet(args, trace, host, measured)
    results = {
        policy: replay(trace, policy, host, measured, args.seed)
        for policy in args.policy or POLICIES
    }
    sys.stdout.write(report.table(results) + "\n\n" + report.plot(results) + "\n")
    return 0
