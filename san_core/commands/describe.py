"""`san describe`: what a bundle holds, as a table."""

import argparse
from pathlib import Path

from san_core.bundle import DEFAULT_BUNDLE, Bundle, load
from san_core.cost import cost
from san_core.resolution import provenance

HELP = "Show what a bundle holds."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("bundle", nargs="?", type=Path, help="default: the embedded one")


def describe(bundle: Bundle) -> str:
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
    lines = [f"{name:<14} {value}" for name, value in facts.items()]
    lines += [
        "",
        f"{'resolution':<22} {'mode':<10} {'prec.':<6} {'MMACs':>7} "
        f"{'top-1':>7} {'top-5':>7} {'n':>6}  data",
    ]
    for a in sorted(manifest.accuracy, key=lambda a: a.point, reverse=True):
        where = f"{a.resolution} {provenance(a.resolution, config.resolutions)}"
        macs = cost(network, a.resolution).macs / 1e6
        lines.append(
            f"{where:<22} {a.mode:<10} {a.precision:<6} {macs:7.0f} "
            f"{a.top1:7.2%} {a.top5:7.2%} {a.n:6}  {a.dataset}"
        )
    if not manifest.accuracy:
        lines += [
            f"{f'{r} trained':<22} {'-':<10} {'-':<6} {cost(network, r).macs / 1e6:7.0f}"
            f" {'not measured: run san evaluate':>30}"
            for r in config.resolutions
        ]
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Print the description."""
    print(describe(load(args.bundle)))
    return 0
