"""The default bundle beside the network it was made of: one table, one plot.

Reads what `san evaluate --json` wrote for both; docs/default_model.md says how.

    python -m benchmarks.default_model original.json distilled.json docs/images/default_model.png
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.plotting import OURS, PEERS, axes, save
from benchmarks.results import table

MODES = ("proxy", "ideal", "data_free")


def read(path: Path) -> dict[tuple[int, str], dict[str, Any]]:
    """Read the figures of one evaluation by (resolution, mode)."""
    entries = json.loads(path.read_text())["entries"]
    return {(entry["resolution"], entry["mode"]): entry for entry in entries}


def percent(entry: dict[str, Any] | None, key: str = "top1") -> str:
    """Write a share in percent."""
    return "-" if entry is None else f"{100 * entry[key]:.1f}"


def compare(
    original: dict[tuple[int, str], dict[str, Any]], ours: dict[tuple[int, str], dict[str, Any]]
) -> str:
    """Write the table: original and every mode of the bundle, top-1 and top-5."""
    sides = sorted({side for side, _ in ours}, reverse=True)
    rows = []
    for side in sides:
        before = original.get((side, "proxy"))
        # One mode throughout: the best of three on the same images would flatter.
        served = ours.get((side, "proxy"))
        apart = None if before is None or served is None else served["top1"] - before["top1"]
        gain = "-" if apart is None else f"{100 * apart:+.2f}"
        cells = [percent(ours.get((side, mode))) for mode in MODES]
        fives = [percent(ours.get((side, mode)), "top5") for mode in ("proxy", "data_free")]
        rows.append([side, percent(before), *cells, gain, percent(before, "top5"), *fives])
    header = ["resolution", "original", *MODES, "proxy gain"]
    return table([*header, "original top-5", "proxy top-5", "data_free top-5"], rows)


def draw(
    original: dict[tuple[int, str], dict[str, Any]],
    ours: dict[tuple[int, str], dict[str, Any]],
    trained: list[int],
    path: Path,
) -> None:
    """Draw top-1 over the resolution, with 95 % intervals."""
    figure, (plot,) = axes(width=6.5, height=4.0)
    series = [("original, as it is", original, "proxy", PEERS[1], "s--")]
    series += [(f"default bundle, {m}", ours, m, c, s) for m, c, s in _styles()]
    for label, found, mode, colour, style in series:
        points = sorted((side, entry) for (side, at), entry in found.items() if at == mode)
        sides = [side for side, _ in points]
        top1 = [100 * entry["top1"] for _, entry in points]
        plot.plot(sides, top1, style, color=colour, label=label, markersize=4)
        if mode == "proxy":
            low = [100 * entry["top1_interval"][0] for _, entry in points]
            high = [100 * entry["top1_interval"][1] for _, entry in points]
            plot.fill_between(sides, low, high, color=colour, alpha=0.12, linewidth=0)
    plot.set_xticks(sorted({side for side, _ in ours}))
    for side in trained:
        plot.axvline(side, color="black", alpha=0.08)
    plot.set_xlabel("resolution (lines: trained)")
    plot.set_ylabel("top-1, %")
    plot.legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path)


def _styles() -> list[tuple[str, str, str]]:
    return [("proxy", OURS, "o-"), ("ideal", PEERS[3], ":"), ("data_free", PEERS[2], "-")]


def main(arguments: list[str] | None = None) -> int:
    """Print the table and write the plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("original", type=Path)
    parser.add_argument("ours", type=Path)
    parser.add_argument("plot", type=Path)
    args = parser.parse_args(arguments)
    original, ours = read(args.original), read(args.ours)
    trained = json.loads(args.ours.read_text())["trained"]
    sys.stdout.write(compare(original, ours))
    draw(original, ours, trained, args.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
