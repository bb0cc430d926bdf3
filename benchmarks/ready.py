"""From a resolution nobody asked for yet to its first answer, against loading a checkpoint of it.

    python -m benchmarks.ready [--quick]

What one meta network replaces is a file per resolution: read it, load it into the module, run it.
The service answers with whatever is ready soonest, which is the torch engine, while OpenVINO
compiles behind it.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.networks import DEFAULT_ARCHITECTURE, untrained
from benchmarks.options import parser, report
from benchmarks.plotting import OURS, PEERS, axes, save
from benchmarks.results import Check, Report, ratio, summarise, table
from benchmarks.turns import Call, in_turns
from san_core.bundle import Bundle
from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from service.engines.base import Engine
from service.engines.openvino_engine import OpenVinoEngine
from service.engines.torch_engine import TorchEngine
from service.runtime.cores import available_cores

ARCHITECTURES = (DEFAULT_ARCHITECTURE, "mobilenet_v2", "resnet50")
CHECKPOINT, TORCH, OPENVINO = "checkpoint", "torch engine", "OpenVINO engine"
_RESOLUTION = 160
_BOUND_MS = 30.0


def checkpoint(bundle: Bundle, path: Path) -> Call:
    """A separate checkpoint of one resolution, read and run."""
    state = bundle.network.generate(_RESOLUTION)
    torch.save({name: tensor.clone() for name, tensor in state.items()}, path)
    module = copy.deepcopy(bundle.network.skeleton).to_empty(device="cpu").eval()
    images = torch.zeros(1, 3, _RESOLUTION, _RESOLUTION)

    def call() -> object:
        module.load_state_dict(torch.load(path, weights_only=True))
        with torch.inference_mode():
            return module(images)

    return call


def engine(made: Engine) -> Call:
    """Generation, compilation and the first run; never the same resolution twice in a row."""
    fresh: Iterator[int] = (_RESOLUTION - 8 + n % 17 for n in count())

    def call() -> object:
        resolution = next(fresh)
        image = np.zeros((1, resolution, resolution, 3), np.float32)
        return made.build(OperatingPoint(resolution, Mode.DATA_FREE)).run(image)

    return call


def contenders(architecture: str, directory: Path) -> dict[str, Call]:
    """The old way and ours."""
    bundle = untrained(architecture)
    settings: dict[str, Any] = {"threads": available_cores(), "max_batch": 8, "device": "cpu"}
    return {
        CHECKPOINT: checkpoint(bundle, directory / "checkpoint.pt"),
        TORCH: engine(TorchEngine(bundle, **settings)),
        OPENVINO: engine(OpenVinoEngine(bundle, **settings)),
    }


def tell(made: Report) -> None:
    """The table and the claims."""
    rows = [
        [
            fact["architecture"],
            *(f"{fact['ms'][name]['p50']:.1f}" for name in (CHECKPOINT, TORCH, OPENVINO)),
            "{:.2f}x ({:.2f} to {:.2f})".format(*fact["faster"]),
        ]
        for fact in made.data["networks"]
    ]
    made.say(
        f"Medians in ms at about {_RESOLUTION} px, first answer included; *faster* is the "
        "checkpoint over the torch engine, round by round."
    )
    head = ["network", "load a checkpoint", TORCH, OPENVINO, "faster (rounds)"]
    made.say(table(head, rows))
    for fact in made.data["networks"]:
        if fact["architecture"] != "resnet50":
            claim = f"cold {fact['architecture']} answers within"
            made.check(Check(claim, fact["ms"][TORCH]["p50"], "<=", _BOUND_MS, " ms"))


def draw(made: Report, path: Path) -> None:
    """Bars side by side."""
    figure, (plot,) = axes(width=6.0)
    facts = made.data["networks"]
    for offset, (name, colour) in enumerate(
        ((CHECKPOINT, PEERS[0]), (TORCH, OURS), (OPENVINO, PEERS[2]))
    ):
        at = [x + 0.27 * (offset - 1) for x in range(len(facts))]
        plot.bar(at, [f["ms"][name]["p50"] for f in facts], 0.25, color=colour, label=name)
    plot.set_xticks(range(len(facts)), [f["architecture"] for f in facts], fontsize=8)
    plot.set(ylabel="p50, ms", yscale="log")
    plot.legend(frameon=False)
    save(figure, path)


def main() -> None:
    """Run it."""
    args = parser(__doc__.split("\n")[0]).parse_args()
    made = report("ready", "Ready", args)
    made.data["networks"] = []
    with tempfile.TemporaryDirectory() as directory:
        for architecture in ARCHITECTURES[1:2] if args.quick else ARCHITECTURES:
            found = in_turns(
                contenders(architecture, Path(directory)),
                rounds=2 if args.quick else 9,
                seconds=0.1 if args.quick else 0.8,
            )
            made.data["networks"].append(
                {
                    "architecture": architecture,
                    "ms": {name: asdict(summarise(found[name])) for name in found},
                    "faster": ratio(found[CHECKPOINT], found[TORCH]),
                }
            )
    tell(made)
    made.write(lambda path: draw(made, path))


if __name__ == "__main__":
    main()
