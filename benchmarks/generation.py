"""Generating a main network, against a copy of the same bytes.

    python -m benchmarks.generation [--quick]

A copy moves all of a main network's bytes, in one block; generation computes the kernels, which it
reads twice, as W and as b, and takes the rest from the meta network as it is. Both write into
memory that was used before. The kernels' copy alone is shown too. Each turn takes the next of
several networks, so that nothing of the last turn is left in a cache: a service makes a resolution
ready now and then, after other work.
"""

from __future__ import annotations

import copy
from dataclasses import asdict
from itertools import cycle
from pathlib import Path

import torch

from benchmarks.driving.turns import Call, in_turns
from benchmarks.reporting.options import parser, report
from benchmarks.reporting.plotting import OURS, PEERS, axes, save
from benchmarks.reporting.results import Check, Report, ratio, summarise, table
from benchmarks.servers.networks import DEFAULT_ARCHITECTURE, untrained
from san_core.main_network.folding import FoldedArchitecture
from san_core.mode import Mode
from san_core.network.generation import KernelBuffer

ARCHITECTURES = ("resnet50", "mobilenet_v2", DEFAULT_ARCHITECTURE)
BOUND = 1.5
_CACHE_BYTES = 128_000_000  # more than the caches of a CPU hold
PARTS = ("copy", "copy of the kernels", "generate", "generate and fold")
_COLOURS = (PEERS[0], PEERS[1], OURS, PEERS[2])
_RATIOS = {"ratio": "generate / copy (rounds)", "ratio_kernels": "generate / copy of the kernels"}


def contenders(architecture: str) -> tuple[dict[str, Call], int]:
    """What is compared, and how many bytes a main network has."""
    first = untrained(architecture).network
    whole = torch.cat([tensor.flatten() for tensor in first.generate(160).values()])
    networks = [first, *(copy.deepcopy(first) for _ in range(_CACHE_BYTES // whole.nbytes))]
    folded = FoldedArchitecture(first.skeleton)
    wholes = [(whole.clone(), whole.clone()) for _ in networks]
    kernels = [network.meta_learner(160).detach() for network in networks]
    targets = [KernelBuffer() for _ in networks]
    for network, target in zip(networks, targets, strict=True):
        network.generate(160, out=target)
    turn = cycle(range(len(networks)))
    between = cycle((110, 144, 150, 176, 200))  # never the same twice in a row

    def copied() -> object:
        source, target = wholes[next(turn)]
        return target.copy_(source)

    def kernels_copied() -> object:
        index = next(turn)
        target = targets[index].flat
        assert target is not None
        return target.copy_(kernels[index])

    def generated() -> object:
        index = next(turn)
        return networks[index].generate(next(between), Mode.IDEAL, out=targets[index])

    def generated_and_folded() -> object:
        return folded.generate(networks[next(turn)], next(between), Mode.IDEAL)

    calls = (copied, kernels_copied, generated, generated_and_folded)
    return dict(zip(PARTS, calls, strict=True)), whole.nbytes


def tell(made: Report) -> None:
    """The table and the claims."""
    rows = [
        [
            fact["architecture"],
            f"{fact['bytes'] / 1e6:.0f}",
            *(f"{fact['ms'][part]['p50']:.2f}" for part in PARTS),
            *("{:.2f} ({:.2f} to {:.2f})".format(*fact[key]) for key in _RATIOS),
        ]
        for fact in made.data["networks"]
    ]
    made.say("One new (resolution, mode) of the meta network, medians in ms.")
    head = ["network", "MB", *PARTS, *_RATIOS.values()]
    made.say(table(head, rows))
    for fact in made.data["networks"]:
        for key, what in (("ratio", "copying all of it"), ("ratio_kernels", "its kernels alone")):
            claim = f"generating {fact['architecture']} over {what}"
            made.check(Check(claim, fact[key][0], "<=", BOUND, "x"))


def draw(made: Report, path: Path) -> None:
    """Bars side by side."""
    figure, (plot,) = axes(width=6.0)
    facts = made.data["networks"]
    for offset, (part, colour) in enumerate(zip(PARTS, _COLOURS, strict=True)):
        at = [x + 0.2 * (offset - 1.5) for x in range(len(facts))]
        plot.bar(at, [f["ms"][part]["p50"] for f in facts], 0.19, color=colour, label=part)
    plot.set_xticks(range(len(facts)), [f["architecture"] for f in facts], fontsize=8)
    plot.set(ylabel="p50, ms")
    plot.legend(frameon=False)
    save(figure, path)


def main() -> None:
    """Run it."""
    args = parser(__doc__.split("\n")[0]).parse_args()
    made = report("generation", "Generation", args)
    made.data["networks"] = []
    for architecture in ARCHITECTURES[1:2] if args.quick else ARCHITECTURES:
        calls, size = contenders(architecture)
        found = in_turns(calls, rounds=2 if args.quick else 15, seconds=0.05 if args.quick else 0.4)
        made.data["networks"].append(
            {
                "architecture": architecture,
                "bytes": size,
                "ms": {part: asdict(summarise(found[part])) for part in PARTS},
                "ratio": ratio(found["generate"], found["copy"]),
                "ratio_kernels": ratio(found["generate"], found["copy of the kernels"]),
            }
        )
    tell(made)
    made.write(lambda path: draw(made, path))


if __name__ == "__main__":
    main()
