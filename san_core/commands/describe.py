"""`san describe`: what a bundle holds, as a table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from san_core.bundle import DEFAULT_BUNDLE, Accuracy, Bundle, read
from san_core.mode import Mode
from san_core.network.cost import cost
from san_core.resolution import provenance

if TYPE_CHECKING:
    from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork

HELP = "Show what a bundle holds."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "bundle",
        nargs="?",
        type=Path,
        metavar="BUNDLE",
        help="the bundle to describe (default: the embedded one)",
    )
    parser.add_argument(
        "--all", action="store_true", help="every mode and precision, not the best per resolution"
    )


EXAMPLES = """examples:
  san describe
  san describe mine.safetensors --all"""


def best(accuracy: Sequence[Accuracy]) -> list[Accuracy]:
    """Return the most accurate point of each resolution; of equals the simplest mode."""
    modes = list(Mode)
    found: dict[int, Accuracy] = {}
    for a in sorted(accuracy, key=lambda a: (-a.top1, modes.index(a.mode), a.precision)):
        found.setdefault(a.resolution, a)
    return list(found.values())


def _macs(network: ScaleAdaptiveNetwork | None, resolution: int) -> str:
    """The column of multiply-adds; nothing without torch, which counts them."""
    return "" if network is None else f" {cost(network, resolution).macs / 1e6:>7.0f}"


def describe(bundle: Bundle, *, every: bool = False) -> str:
    """Return the description as text; what must be counted in the network needs torch."""
    manifest = bundle.manifest
    network = bundle.network if find_spec("torch") else None
    config = manifest.network
    stored = (bundle.path or DEFAULT_BUNDLE).stat().st_size
    facts = {
        "bundle": f"{manifest.name} {manifest.version} ({stored / 1e6:.1f} MB)",
        "architecture": f"{config.architecture}, {config.num_classes} classes",
        "meta learner": config.meta_learner,
        "trained at": ", ".join(map(str, config.resolutions)),
        "calibrated at": ", ".join(map(str, manifest.calibrated)) or "-",
    }
    if network is not None:
        parameters = sum(p.numel() for p in network.parameters())
        main = cost(network, config.resolutions[0]).parameters
        facts["meta learner"] += f", {parameters / 1e6:.2f} M parameters in all"
        facts["main network"] = f"{main / 1e6:.2f} M parameters"
    facts |= {
        key: str(value) for key, value in manifest.provenance.items() if isinstance(value, str)
    }
    sources = sorted({f"{a.dataset} ({a.n} images)" for a in manifest.accuracy})
    if sources:
        facts["measured on"] = "; ".join(sources)
    lines = [f"{name:<14} {value}" for name, value in facts.items()]
    head = "" if network is None else f" {'MMACs':>7}"
    lines += [
        "",
        f"{'resolution':<22} {'mode':<10} {'prec.':<6}{head} {'top-1':>7} {'top-5':>7}",
    ]
    shown = manifest.accuracy if every else best(manifest.accuracy)
    for a in sorted(shown, key=lambda a: a.point, reverse=True):
        where = f"{a.resolution} {provenance(a.resolution, config.resolutions)}"
        macs = _macs(network, a.resolution)
        lines.append(f"{where:<22} {a.mode:<10} {a.precision:<6}{macs} {a.top1:7.2%} {a.top5:7.2%}")
    if len(shown) < len(manifest.accuracy):
        lines.append(f"{len(manifest.accuracy) - len(shown)} more with --all")
    if not manifest.accuracy:
        lines += [
            f"{f'{r} trained':<22} {'-':<10} {'-':<6}{_macs(network, r)}"
            f" {'not measured: run san prepare':>30}"
            for r in config.resolutions
        ]
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Print the description."""
    print(describe(read(args.bundle, mapped=True), every=args.all))
    return 0
