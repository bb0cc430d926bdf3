"""A training step of a scale adaptive network, against plain torchvision steps.

    python -m benchmarks.training_step [--quick] [--architecture resnet18]

Time: one mixed-scale step with distillation over the sum of one plain step per resolution, each
with its own forward, backward and SGD step. Memory: the peak of a mixed-scale step over the peak of
a plain step at the largest resolution, each in a process of its own, what the meta parameters and
their momentum take left out.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from benchmarks.driving.turns import Call, in_turns
from benchmarks.reporting.options import parser, report
from benchmarks.reporting.results import Check, Report, ratio, summarise, table
from san_core.network.architectures import build
from san_core.network.network_config import NetworkConfig
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from training.loop.gradients import FlatGradients
from training.loop.objective import Batch, MixedScale, Passes
from training.runtime.memory import keep_freed_memory

CLASSES = 100
TIME_BOUND, MEMORY_BOUND = 1.15, 1.25
SGD = {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4, "fused": True}


def batch(resolutions: tuple[int, ...], size: int) -> Batch:
    """Random images and labels."""
    torch.manual_seed(0)
    images = {side: torch.randn(size, 3, side, side) for side in resolutions}
    return Batch(images, torch.randint(0, CLASSES, (size,)))


def plain_step(network: nn.Module, data: Batch, side: int, sgd: torch.optim.SGD) -> None:
    """What anyone writes for one resolution."""
    sgd.zero_grad(set_to_none=True)
    loss = F.cross_entropy(network(data.images[side]), data.labels)
    torch.autograd.backward(loss)
    sgd.step()


def plain(architecture: str, resolutions: tuple[int, ...], size: int) -> Call:
    """One step of the stock network per resolution."""
    network = build(architecture, CLASSES).train()
    sgd = torch.optim.SGD(network.parameters(), **SGD)
    data = batch(resolutions, size)

    def call() -> None:
        for side in resolutions:
            plain_step(network, data, side, sgd)

    return call


def mixed(architecture: str, resolutions: tuple[int, ...], size: int) -> Call:
    """One mixed-scale step, as the trainer takes it."""
    network = ScaleAdaptiveNetwork(NetworkConfig(architecture, resolutions, CLASSES))
    objective = MixedScale(network)
    objective.train()
    gradients = FlatGradients(list(network.parameters()), [])
    sgd = torch.optim.SGD(network.parameters(), **SGD)
    data = batch(resolutions, size)

    def call() -> None:
        gradients.zero()
        objective.run(data, Passes(torch.autograd.backward))
        sgd.step()

    return call


def peak_bytes() -> int:
    """The most memory that this process ever held."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure_peak(args: argparse.Namespace) -> None:
    """In a process of its own: what two steps add to the peak."""
    resolutions = tuple(args.resolutions)
    torch.randn(64, 64) @ torch.randn(64, 64)  # what the libraries allocate anyway
    before = peak_bytes()
    if args.peak == "plain":
        call = plain(args.architecture, resolutions[:1], args.batch_size)
    else:
        call = mixed(args.architecture, resolutions, args.batch_size)
    for _ in range(2):
        call()
    print(json.dumps(peak_bytes() - before))


def peak(kind: str, args: argparse.Namespace) -> int:
    """Measure a peak in a child."""
    command = [sys.executable, "-m", "benchmarks.training_step", "--peak", kind]
    command += ["--architecture", args.architecture, "--batch-size", str(args.batch_size)]
    command += ["--resolutions", *map(str, args.resolutions)]
    return int(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))


def tell(made: Report) -> None:
    """The tables and the claims."""
    time, memory = made.data["ms"], made.data["memory"]
    rows = [[name, f"{time[name]['p50']:.0f}"] for name in ("plain", "mixed")]
    made.say(table(["step", "ms (p50)"], rows))
    made.check(
        Check("mixed-scale step over plain steps", made.data["ratio"][0], "<=", TIME_BOUND, "x")
    )
    rows = [[name, f"{value / 1e6:.0f}"] for name, value in memory.items()]
    made.say(table(["peak", "MB"], rows))
    over = (memory["mixed"] - memory["meta parameters and momentum"]) / memory["plain"]
    made.check(Check("peak memory over the largest plain step", over, "<=", MEMORY_BOUND, "x"))


def main() -> None:
    """Run it."""
    options = parser(__doc__.split("\n")[0])
    options.add_argument("--architecture", default="resnet18")
    options.add_argument("--resolutions", type=int, nargs="+", default=[224, 192, 160, 128, 96])
    options.add_argument("--batch-size", type=int, default=32)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--peak", choices=("plain", "mixed"), help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.quick and not args.peak:
        args.resolutions, args.batch_size, args.rounds = [64, 48, 32], 8, 2
    if args.peak:
        measure_peak(args)
        return
    made = report("training_step", "Training step", args)
    resolutions = tuple(args.resolutions)
    memory = {kind: peak(kind, args) for kind in ("plain", "mixed")}
    kernels = ScaleAdaptiveNetwork(
        NetworkConfig(args.architecture, resolutions, CLASSES)
    ).meta_learner
    memory["meta parameters and momentum"] = 2 * sum(p.nbytes for p in kernels.parameters())
    keep_freed_memory()  # as `san train` does, for both
    calls = {
        "plain": plain(args.architecture, resolutions, args.batch_size),
        "mixed": mixed(args.architecture, resolutions, args.batch_size),
    }
    found = in_turns(calls, rounds=args.rounds, seconds=0.1)
    made.data["ms"] = {name: vars(summarise(found[name])) for name in calls}
    made.data["ratio"] = ratio(found["mixed"], found["plain"])
    made.data["memory"] = memory
    tell(made)
    made.write()


if __name__ == "__main__":
    main()
