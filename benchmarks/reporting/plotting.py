"""Plots that look alike: small files, no colour that means two things."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullLocator

OURS = "#0b6e4f"
PEERS = ("#8d99ae", "#d1495b", "#edae49", "#00798c", "#30638e", "#6c4a8c")


def axes(columns: int = 1, width: float = 5.0, height: float = 3.2) -> tuple[Any, list[Any]]:
    """A figure with a row of plots."""
    figure, found = plt.subplots(1, columns, figsize=(width * columns, height), squeeze=False)
    for one in found[0]:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(axis="y", alpha=0.3)
    return figure, list(found[0])


def plain_numbers(axis: Any) -> None:
    """1, 2, 5, 10 … on a logarithmic axis."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def save(figure: Any, path: Path) -> None:
    """Write a PNG of some tens of kilobytes."""
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
