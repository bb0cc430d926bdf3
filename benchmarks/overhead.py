"""What the service adds to what must be done: decode, forward and one HTTP round trip.

    python -m benchmarks.overhead [--quick] [--bundle FILE]

End-to-end p50 of one client, divided by the sum of the p50s of the three alone: the service's own
decoder and engine called in a loop, and a bare Starlette route that takes the same body. All four
in turns, round after round. In a loop of its own a part finds its caches warm and its threads
awake, as it never does within a request: the quotient counts that as overhead too.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.options import parser, report
from benchmarks.our_service import OurService, Point, classify
from benchmarks.photo import photo
from benchmarks.plotting import OURS, PEERS, axes, save
from benchmarks.processes import Server, free_port
from benchmarks.results import Check, Report, summarise, table
from benchmarks.turns import Rounds, in_turns
from benchmarks.wire import Client
from san_core.bundle import Bundle, load
from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from service.cores import available_cores, plan_cores
from service.decoding import to_input
from service.engines.base import Engine
from service.settings import Settings

_WARM_S = 1.0
PARTS = ("decode", "forward", "http", "whole")


def engine_like(name: str, bundle: Bundle, max_batch: int) -> Engine:
    """The engine that the service said it uses, as it sets it up."""
    threads = plan_cores(available_cores(), name).engine
    if name == "openvino":
        from service.engines.openvino_engine import OpenVinoEngine

        return OpenVinoEngine(bundle, threads=threads, max_batch=max_batch, device="cpu")
    from service.engines.torch_engine import TorchEngine

    return TorchEngine(bundle, threads=threads, max_batch=max_batch, device="cpu")


def compare(
    service: OurService,
    bare: Client,
    engine: Engine,
    bundle: Bundle,
    point: Point,
    rounds: int,
    seconds: float,
) -> Rounds:
    """The four in turns at one resolution."""
    body, preprocessing = photo(), bundle.manifest.preprocessing
    pixels = np.ascontiguousarray(to_input(body, preprocessing, point.resolution)[None])
    request = classify(body, resolution=point.resolution)
    with Client(service.port) as client:
        client.send(request)  # cold, perhaps
        time.sleep(_WARM_S)
        told = json.loads(client.send(request).body)  # a pin leaves the precision to the service
        operating = OperatingPoint(point.resolution, Mode(told["mode"]), told["precision"])
        network = engine.build(operating)
        return in_turns(
            {
                "decode": lambda: to_input(body, preprocessing, point.resolution),
                "forward": lambda: network.run(pixels),
                "http": lambda: bare.send(request),
                "whole": lambda: client.send(request),
            },
            rounds=rounds,
            seconds=seconds,
        )


def overheads(found: Rounds) -> list[float]:
    """Per round: the whole over the sum of its parts."""
    medians = {part: [float(np.median(one)) for one in rounds] for part, rounds in found.items()}
    pairs = zip(*(medians[part] for part in PARTS), strict=True)
    return [whole / (decode + forward + http) for decode, forward, http, whole in pairs]


def tell(made: Report) -> None:
    """The table and the claim."""
    rows = [
        [
            fact["point"],
            *(f"{fact['ms'][part]['p50']:.2f}" for part in PARTS),
            f"{fact['overhead']:.3f} ({min(fact['rounds']):.3f} to {max(fact['rounds']):.3f})",
        ]
        for fact in made.data["overheads"]
    ]
    made.say("One client, a 500 px JPEG, medians in ms.")
    head = ["point", "decode", "forward", "HTTP", "end to end", "end to end / sum (rounds)"]
    made.say(table(head, rows))
    first = made.data["overheads"][0]
    made.check(Check(f"overhead at {first['point']}", first["overhead"], "<=", 1.25, "x"))
    fastest = made.data["overheads"][-1]
    added = fastest["ms"]["whole"]["p50"] - sum(fastest["ms"][part]["p50"] for part in PARTS[:3])
    made.check(Check(f"added to the parts at {fastest['point']}", added, "<=", 0.3, " ms"))


def draw(made: Report, path: Path) -> None:
    """The parts stacked beside the whole."""
    figure, (plot,) = axes(1, width=6.0)
    facts: list[dict[str, Any]] = made.data["overheads"]
    names = [fact["point"] for fact in facts]
    floor = np.zeros(len(facts))
    for part, colour in zip(PARTS[:3], PEERS[1:], strict=False):
        heights = np.array([fact["ms"][part]["p50"] for fact in facts])
        plot.bar(names, heights, 0.4, bottom=floor, color=colour, label=part, align="edge")
        floor += heights
    wholes = [fact["ms"]["whole"]["p50"] for fact in facts]
    plot.bar(names, wholes, -0.4, color=OURS, label="end to end", align="edge")
    plot.set(ylabel="p50, ms")
    plot.tick_params(axis="x", labelsize=7)
    plot.legend(frameon=False)
    save(figure, path)


def main() -> None:
    """Run it."""
    args = parser(__doc__.split("\n")[0]).parse_args()
    made = report("overhead", "Overhead", args)
    rounds, seconds = (2, 0.2) if args.quick else (7, 0.8)
    bundle = load(args.bundle)
    with OurService(args.bundle) as service:
        service.await_ready()
        told = service.ask("/resolutions")
        engine = engine_like(told["engine"], bundle, Settings.model_fields["max_batch"].default)
        seen = {point.resolution: point for point in service.points() if point.frontier}
        with Client(service.port) as client:
            size = len(client.send(classify(photo())).body)
        port = free_port()
        command = [sys.executable, "-m", "benchmarks.bare_server", str(port), str(size)]
        made.data["overheads"] = []
        with Server("bare Starlette", command, port) as server, Client(port) as bare:
            server.await_answer(classify(b"x"), 60)
            for point in list(seen.values())[: 1 if args.quick else None]:
                found = compare(service, bare, engine, bundle, point, rounds, seconds)
                each = overheads(found)
                made.data["overheads"].append(
                    {
                        "point": f"{point.resolution} px",
                        "ms": {part: asdict(summarise(found[part])) for part in PARTS},
                        "rounds": each,
                        "overhead": float(np.median(each)),
                    }
                )
                print(f"{point.name}: {np.median(each):.3f}", flush=True)
    tell(made)
    made.write(lambda path: draw(made, path))


if __name__ == "__main__":
    main()
