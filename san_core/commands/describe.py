"""`san describe`: what a bundle holds, as a table."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from san_core.bundle import DEFAULT_BUNDLE, Accuracy, Bundle, load
from san_core.mode import Mode
from san_core.network.cost import cost
from san_core.resolution import provenance

HELP = "Show what a bundle holds."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("bundle", nargs="?", type=Path, help="default: the embedded one")
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


def describe(bundle: Bundle, *, every: bool = False) -> str:
    """Return the description as text."""
    manifest, network = bundle.manifest, bundle.network
    config = manifest.network
    stored = (bundle.path or DEFAULT_BUNDLE).stat().st_size
    parameters = sum(p.numel() for p in network.parameters())
    facts = {
        "bundle": f"{manifest.name} {manifest.version} ({stored / 1e6:.1f} MB)",
        "architecture": f"{config.architecture}, {config.num_classes} classes",
        "meta learner": f"{config.meta_learner}, {parameters / 1e6:.2f} M parameters in all",
        "main network": f"{cost(network, config.resolutions[0]).parameters / 1e6:.2f} M parameters",
        "trained at": ", ".join(map(str, config.resolutions)),
        "calibrated at": ", ".join(map(str, manifest.calibrated)) or "-",
    }
    facts |= {
        key: str(value) for key, value in manifest.provenance.items() if isinstance(value, str)
    }
    sources = sorted({f"{a.dataset} ({a.n} images)" for a in manifest.accuracy})
    if sources:
        facts["measured on"] = "; ".join(sources)
    lines = [f"{name:<14} {value}" for name, value in facts.items()]
    lines += [
        "",
        f"{'resolution':<22} {'mode':<10} {'prec.':<6} {'MMACs':>7} {'top-1':>7} {'top-5':>7}",
    ]
    shown = manifest.accuracy if every else best(manifest.accuracy)
    for a in sorted(shown, key=lambda a: a.point, reverse=True):
        where = f"{a.resolution} {provenance(a.resolution, config.resolutions)}"
        macs = cost(network, a.resolution).macs / 1e6
        lines.append(
            f"{where:<22} {a.mode:<10} {a.precision:<6} {macs:7.0f} {a.top1:7.2%} {a.top5:7.2%}"
        )
    if len(shown) < len(manifest.accuracy):
        lines.append(f"{len(manifest.accuracy) - len(shown)} more with --all")
    if not manifest.accuracy:
        lines += [
            f"{f'{r} trained':<22} {'-':<10} {'-':<6} {cost(network, r).macs / 1e6:7.0f}"
            f" {'not measured: run san prepare':>30}"
            for r in config.resolutions
        ]
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Print the description."""
    print(describe(load(args.bundle), every=args.all))
    return 0
