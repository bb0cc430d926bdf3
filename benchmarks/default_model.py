"""The accuracy of bundles beside each other: one table, one plot.

Reads what `san evaluate` noted in the bundles; docs/default_model.md says how they were measured.

    python -m benchmarks.default_model "3=old.safetensors" "4=new.safetensors" PLOT.png
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.reporting.plotting import OURS, PEERS, axes, save
from benchmarks.reporting.results import table
from san_core.bundle import Accuracy, Manifest, read_manifest
from san_core.frontier import Precision

_COLOURS = (PEERS[1], OURS, PEERS[2], PEERS[3])


def served(manifest: Manifest, precision: Precision) -> dict[int, Accuracy]:
    """Return by resolution what the service offers: of several modes the most accurate."""
    found: dict[int, Accuracy] = {}
    for accuracy in manifest.accuracy:
        known = found.get(accuracy.resolution)
        if accuracy.precision == precision and (known is None or accuracy.top1 > known.top1):
            found[accuracy.resolution] = accuracy
    return found


def compare(bundles: dict[str, Manifest]) -> str:
    """Write the table: top-1 of every bundle by resolution, in float and in int8."""
    columns = [
        (f"{name}, {precision}", served(manifest, precision))
        for name, manifest in bundles.items()
        for precision in ("float", "int8")
    ]
    sides = sorted({side for _, found in columns for side in found}, reverse=True)
    rows = [
        [side, *(f"{100 * found[side].top1:.1f}" if side in found else "-" for _, found in columns)]
        for side in sides
    ]
    return table(["resolution", *(name for name, _ in columns)], rows)


def draw(bundles: dict[str, Manifest], path: Path) -> None:
    """Draw top-1 over the resolution: float solid, int8 dotted."""
    figure, (plot,) = axes(width=6.5, height=4.0)
    for (name, manifest), colour in zip(bundles.items(), _COLOURS, strict=False):
        for precision, style in (("float", "o-"), ("int8", "x:")):
            found = sorted(served(manifest, precision).items())
            sides, top1 = [side for side, _ in found], [100 * a.top1 for _, a in found]
            plot.plot(sides, top1, style, color=colour, label=f"{name}, {precision}", markersize=4)
    plot.set_xlabel("resolution")
    plot.set_ylabel("top-1, %")
    plot.legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path)


def main(arguments: list[str] | None = None) -> int:
    """Print the table and write the plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundles", nargs="+", metavar="NAME=BUNDLE")
    parser.add_argument("plot", type=Path)
    args = parser.parse_args(arguments)
    pairs = (text.partition("=") for text in args.bundles)
    bundles = {name: read_manifest(path) for name, _, path in pairs}
    sys.stdout.write(compare(bundles))
    draw(bundles, args.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
