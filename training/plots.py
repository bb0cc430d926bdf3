"""Figures, drawn without a display."""

import logging
from pathlib import Path
from typing import Any

from training.errors import DataError


def new_figure(rows: int, columns: int, width: float, height: float) -> tuple[Any, list[Any]]:
    """Make a figure and its axes, row by row."""
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it tells of every font it finds
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # optional, slow to import
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DataError("Figures need matplotlib: pip install 'san-serve[training]'.") from error
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def save_figure(figure: Any, path: Path) -> Path:
    """Write a figure as PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
