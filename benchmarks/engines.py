"""The engines side by side: one image, every trained resolution, ratio to eager torch.

    python -m benchmarks.engines [--quick] [--bundle FILE] [--threads N]

*Eager torch* is the stock module with the generated state dict, as one would run it by hand; the
torch engine folds batch norm and keeps to channels_last. All have the same threads. *One product*
is a single product of square float32 matrices with as many multiply-adds as the network: what the
processor could do if a network were nothing else.
"""

from __future__ import annotations

import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.driving.turns import Call, in_turns
from benchmarks.reporting.options import parser, report
from benchmarks.reporting.plotting import OURS, PEERS, axes, plain_numbers, save
from benchmarks.reporting.results import Check, Report, ratio, summarise, table
from benchmarks.servers.networks import chosen
from san_core.bundle import Bundle
from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from san_core.network.cost import cost
from service.engines.openvino.engine import OpenVinoEngine
from service.engines.torch_engine import TorchEngine
from service.runtime.cores import available_cores

EAGER, TORCH, FLOAT, INT8 = "eager torch", "torch engine", "OpenVINO float", "OpenVINO int8"
PRODUCT = "one product"
_COLOURS = {EAGER: PEERS[0], TORCH: PEERS[4], FLOAT: OURS, INT8: PEERS[2], PRODUCT: PEERS[1]}


def eager(bundle: Bundle, resolution: int) -> Call:
    """The stock module, loaded and called as anyone would."""
    module = copy.deepcopy(bundle.network.skeleton).to_empty(device="cpu").eval()
    module.load_state_dict(bundle.network.generate(resolution))
    images = torch.randn(1, 3, resolution, resolution)

    def call() -> object:
        with torch.inference_mode():
            return module(images)

    return call


def product(bundle: Bundle, resolution: int) -> Call:
    """As many multiply-adds as the network has, in the shape that a processor does fastest."""
    side = round(cost(bundle.network, resolution).macs ** (1 / 3))
    left, right, made = (torch.randn(side, side) for _ in range(3))
    return lambda: torch.mm(left, right, out=made)


def contenders(bundle: Bundle, engines: dict[str, Any], resolution: int) -> dict[str, Call]:
    """Everything that can run this resolution."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (1, resolution, resolution, 3), np.uint8)
    calls = {EAGER: eager(bundle, resolution)}
    for name, engine in engines.items():
        precision = "int8" if name == INT8 else "float"
        if precision not in engine.precisions:
            continue
        network = engine.build(OperatingPoint(resolution, Mode.PROXY, precision))
        calls[name] = lambda network=network: network.run(image)
    return calls | {PRODUCT: product(bundle, resolution)}


def tell(made: Report) -> None:
    """The table and the claims."""
    rows = []
    for fact in made.data["resolutions"]:
        for name, summary in fact["ms"].items():
            rows.append(
                [
                    f"{fact['resolution']} {name}",
                    f"{summary['p50']:.2f} ({summary['low']:.2f} to {summary['high']:.2f})",
                    f"{summary['p95']:.2f}",
                    f"{summary['p99']:.2f}",
                    "{:.2f}x ({:.2f} to {:.2f})".format(*fact["faster"][name]),
                ]
            )
    made.say(
        "Batch 1, ms; *faster* is eager torch's median over this one's, round by round. *One "
        "product* is a single product of square float32 matrices with as many multiply-adds."
    )
    made.say(table(["engine", "p50 (rounds)", "p95", "p99", "faster (rounds)"], rows))
    facts = made.data["resolutions"]
    least = min(fact["faster"][FLOAT][0] for fact in facts)
    made.check(Check("OpenVINO float over eager torch, worst resolution", least, ">=", 3, "x"))
    largest = facts[0]
    if "int8_faster" in largest:
        claim = f"int8 over float at {largest['resolution']}"
        made.check(Check(claim, largest["int8_faster"][0], ">=", 1.6, "x"))


def draw(made: Report, path: Path) -> None:
    """Latency over the resolution."""
    figure, (plot,) = axes(width=6.0)
    facts = made.data["resolutions"]
    for name, colour in _COLOURS.items():
        points = [(f["resolution"], f["ms"][name]["p50"]) for f in facts if name in f["ms"]]
        if points:
            plot.plot(*zip(*points, strict=True), "o-", color=colour, label=name)
    plot.set(xlabel="resolution", ylabel="p50, ms", yscale="log")
    plain_numbers(plot.yaxis)
    plot.set_xticks([f["resolution"] for f in facts])
    plot.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save(figure, path)


def main() -> None:
    """Run it."""
    options = parser(__doc__.split("\n")[0])
    options.add_argument("--threads", type=int, default=available_cores())
    args = options.parse_args()
    made = report("engines", "Engines", args)
    bundle = chosen(args.bundle)
    settings: dict[str, Any] = {"threads": args.threads, "max_batch": 1, "device": "cpu"}
    openvino = OpenVinoEngine(bundle, **settings)
    engines = {TORCH: TorchEngine(bundle, **settings), FLOAT: openvino, INT8: openvino}
    made.data["describe"] = openvino.describe()
    made.data["resolutions"] = []
    resolutions = bundle.network.resolutions
    for resolution in resolutions[-1:] if args.quick else resolutions:
        calls = contenders(bundle, engines, resolution)
        found = in_turns(calls, rounds=2 if args.quick else 11, seconds=0.1 if args.quick else 0.7)
        fact: dict[str, Any] = {
            "resolution": resolution,
            "ms": {name: asdict(summarise(found[name])) for name in calls},
            "faster": {name: ratio(found[EAGER], found[name]) for name in calls},
        }
        if INT8 in found:
            fact["int8_faster"] = ratio(found[FLOAT], found[INT8])
        made.data["resolutions"].append(fact)
        print(resolution, {n: round(s["p50"], 2) for n, s in fact["ms"].items()}, flush=True)
    tell(made)
    made.write(lambda path: draw(made, path))


if __name__ == "__main__":
    main()
