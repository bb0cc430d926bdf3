"""This release and an earlier one in turns: one client's time by resolution, and throughput.

    python -m benchmarks.releases CHECKOUT [--quick] [--bundle FILE]

Both serve the same bundle, the earlier release's own unless one is named, in float: the earlier
release cannot be told a precision. Blocks of requests go to one and the other, round after round.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.driving.open_loop import closed_loop
from benchmarks.driving.photo import photo
from benchmarks.driving.turns import in_turns
from benchmarks.driving.wire import Client
from benchmarks.reporting.options import parser, report
from benchmarks.reporting.results import table
from benchmarks.servers.earlier import Earlier
from benchmarks.servers.our_service import OurService, classify
from benchmarks.servers.processes import Server

_RESOLUTIONS = (224, 160, 96)
_CLIENTS = 16


def main() -> None:
    """Compare."""
    options = parser(__doc__.split("\n")[0])
    options.add_argument("checkout", type=Path, help="checkout of the earlier release")
    args = options.parse_args()
    rounds, seconds = (2, 0.2) if args.quick else (16, 0.5)
    made = report("releases", "Two releases", args)
    bundle = args.bundle or args.checkout / "san_core" / "default_bundle" / "default.safetensors"
    body, rows = photo(), []
    with Earlier(args.checkout, bundle) as earlier, OurService(bundle) as now:
        asked: dict[str, tuple[Server, dict[str, str]]] = {
            "earlier": (earlier.await_ready(), {}),
            "now": (now.await_ready(), {"precision": "float"}),
        }
        for resolution in _RESOLUTIONS:
            with Client(earlier.port) as first, Client(now.port) as second:
                clients = {"earlier": first, "now": second}
                calls = {
                    name: partial(clients[name].send, classify(body, resolution=resolution, **more))
                    for name, (_, more) in asked.items()
                }
                found = in_turns(calls, rounds=rounds, seconds=seconds)
            ms = {name: median(map(median, found[name])) for name in asked}
            made.data[str(resolution)] = ms
            rows.append(
                [f"{resolution} px, one client, ms", *ms.values(), ms["now"] / ms["earlier"]]
            )
        rates: dict[str, list[float]] = {name: [] for name in asked}
        for number in range(rounds // 2):
            for name in asked if number % 2 else reversed(asked):
                server, more = asked[name]
                request = classify(body, resolution=_RESOLUTIONS[0], **more)
                samples, took = closed_loop(
                    server.port, [request], clients=_CLIENTS, seconds=2 * seconds
                )
                rates[name].append(sum(sample.status == 200 for sample in samples) / took)
        per_s = {name: median(found) for name, found in rates.items()}
        made.data["per_s"] = per_s
        rows.append(
            [f"{_RESOLUTIONS[0]} px, {_CLIENTS} clients, requests/s", *per_s.values(),
             per_s["now"] / per_s["earlier"]]
        )  # fmt: skip
    cells = [[name, f"{a:.2f}", f"{b:.2f}", f"{ratio:.2f}"] for name, a, b, ratio in rows]
    made.say(table(["float", *asked, "now / earlier"], cells))
    made.write()


if __name__ == "__main__":
    main()
