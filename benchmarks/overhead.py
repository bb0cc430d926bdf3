"""What the service adds to what must be done: decode, forward and one HTTP round trip.

    python -m benchmarks.overhead [--quick] [--bundle FILE]

End-to-end p50 of one client, divided by the sum of the p50s of the three alone: the service's own
decoder and engine called in a loop, and a bare Starlette route that takes the same body. All
in turns, round after round. In a loop of its own a part finds its caches warm and its threads
awake, as it never does within a request: the quotient counts that as overhead too. What the service
itself adds is told by a fifth: a bare Starlette route that does the same decode and forward and
nothing else. Both tell how long those two took, and what is left of a request without them is
compared: the two networks of a round are not equally lucky with the machine.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.driving.photo import photo
from benchmarks.driving.turns import Rounds, in_turns
from benchmarks.driving.wire import Client
from benchmarks.reporting.options import parser, report
from benchmarks.reporting.plotting import OURS, PEERS, axes, save
from benchmarks.reporting.results import Check, Report, summarise, table
from benchmarks.servers.our_service import OurService, Point, classify
from benchmarks.servers.own_parts import Parts
from benchmarks.servers.processes import Server, free_port
from san_core.frontier import OperatingPoint
from san_core.mode import Mode

_WARM_S = 1.0
PARTS = ("decode", "forward", "http", "whole", "same")


@contextlib.contextmanager
def bare_server(*arguments: object) -> Iterator[Client]:
    """A bare Starlette server, and a connection to it."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "benchmarks.servers.bare_server",
        str(port),
        *map(str, arguments),
    ]
    with Server("bare Starlette", command, port) as server:
        server.await_answer("/", 60, lambda answer: answer.status == 404)
        with Client(port) as client:
            yield client


class Asked:
    """Asks a server again and again, and notes what a request took besides decode and forward."""

    def __init__(self, client: Client, request: bytes) -> None:
        self._client = client
        self._request = request
        self.rests: list[float] = []

    def __call__(self) -> None:
        """Once."""
        took, answer = self._client.time(self._request)
        told = answer.header("server-timing") or ""
        stages = dict(stage.split(";dur=") for stage in told.split(", "))
        self.rests.append(took - float(stages["decode"]) - float(stages["forward"]))


def compare(
    service: OurService,
    bare: Client,
    working: Client,
    parts: Parts,
    point: Point,
    rounds: int,
    seconds: float,
) -> tuple[Rounds, list[float], list[float]]:
    """All of them in turns at one resolution; then the rests of ours and of the same work."""
    body = photo()
    pixels = parts.decode(body, point.resolution)
    request = classify(body, resolution=point.resolution)
    with Client(service.port) as client:
        client.send(request)  # cold, perhaps
        time.sleep(_WARM_S)
        told = json.loads(client.send(request).body)  # a pin leaves the precision to the service
        operating = OperatingPoint(point.resolution, Mode(told["mode"]), told["precision"])
        network = parts.network(operating)
        same = classify(
            body, resolution=point.resolution, mode=told["mode"], precision=told["precision"]
        )
        ours, others = Asked(client, request), Asked(working, same)
        found = in_turns(
            {
                "decode": lambda: parts.decode(body, point.resolution),
                "forward": lambda: network.run(pixels),
                "http": lambda: bare.send(request),
                "whole": ours,
                "same": others,
            },
            rounds=rounds,
            seconds=seconds,
        )
        return found, ours.rests, others.rests


def overheads(found: Rounds) -> list[float]:
    """Per round: the whole over the sum of its parts."""
    medians = {part: [float(np.median(one)) for one in rounds] for part, rounds in found.items()}
    rows = zip(*(medians[part] for part in PARTS[:4]), strict=True)
    return [whole / (decode + forward + http) for decode, forward, http, whole in rows]


def tell(made: Report) -> None:
    """The table and the claim."""
    rows = [
        [
            fact["point"],
            *(f"{fact['ms'][part]['p50']:.2f}" for part in PARTS),
            f"{fact['overhead']:.3f} ({min(fact['rounds']):.3f} to {max(fact['rounds']):.3f})",
            *(f"{fact[name]:.2f}" for name in ("rest", "same_rest", "added")),
        ]
        for fact in made.data["overheads"]
    ]
    made.say(
        "One client, a 500 px JPEG, medians in ms. *Same work* is a bare Starlette route that "
        "decodes and runs the network on one thread. *Rest* is what a request takes besides decode "
        "and forward as they were within it: ours, that route's, and how much more ours is."
    )
    head = ["point", "decode", "forward", "HTTP", "end to end", "same work"]
    made.say(table([*head, "end to end / sum (rounds)", "rest", "its rest", "more"], rows))
    first = made.data["overheads"][0]
    made.check(Check(f"overhead at {first['point']}", first["overhead"], "<=", 1.25, "x"))
    fastest = made.data["overheads"][-1]
    added = fastest["ms"]["whole"]["p50"] - sum(fastest["ms"][part]["p50"] for part in PARTS[:3])
    made.check(Check(f"added to the parts at {fastest['point']}", added, "<=", 0.3, " ms"))
    for fact in made.data["overheads"][:: max(1, len(rows) - 1)]:  # the largest and the smallest
        claim = f"added to a bare route's rest at {fact['point']}"
        made.check(Check(claim, fact["added"], "<=", 0.3, " ms"))


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
    rounds, seconds = (2, 0.2) if args.quick else (28, 0.2)
    with OurService(args.bundle) as service:
        service.await_ready()
        told = service.ask("/resolutions")
        parts = Parts(args.bundle, told["engine"])
        seen = {point.resolution: point for point in service.points() if point.frontier}
        with Client(service.port) as client:
            size = len(client.send(classify(photo())).body)
        made.data["overheads"] = []
        bundle = [str(args.bundle)] if args.bundle else []
        with bare_server(size) as bare, bare_server(size, told["engine"], *bundle) as working:
            for point in list(seen.values())[: 1 if args.quick else None]:
                found, *rests = compare(service, bare, working, parts, point, rounds, seconds)
                each = overheads(found)
                rest, same_rest = (float(np.median(one)) for one in rests)
                made.data["overheads"].append(
                    {
                        "point": f"{point.resolution} px",
                        "ms": {part: asdict(summarise(found[part])) for part in PARTS},
                        "rounds": each,
                        "overhead": float(np.median(each)),
                        "rest": rest,
                        "same_rest": same_rest,
                        "added": rest - same_rest,
                    }
                )
                print(
                    f"{point.resolution} px: {np.median(each):.3f}, {rest - same_rest:.2f} ms",
                    flush=True,
                )
    tell(made)
    made.write(lambda path: draw(made, path))


if __name__ == "__main__":
    main()
