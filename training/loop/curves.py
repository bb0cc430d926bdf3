"""A run's curves as a PNG."""

from pathlib import Path
from typing import Any

from training.loop import runlog
from training.plots import new_figure, save_figure

FILE_NAME = "curves.png"


def _series(events: list[dict[str, Any]], field: str) -> dict[str, tuple[list[int], list[float]]]:
    series: dict[str, tuple[list[int], list[float]]] = {}
    for event in events:
        for name, value in event.get(field, {}).items():
            steps, values = series.setdefault(name, ([], []))
            steps.append(event["step"])
            values.append(value)
    return series


def draw(folder: Path) -> Path | None:
    """Draw losses, accuracies and learning rate of a run; None if it has logged nothing."""
    events = runlog.read(folder / runlog.FILE_NAME)
    steps = [event for event in events if event["kind"] == "step"]
    if not steps:
        return None
    figure, axes = new_figure(1, 3, 15, 4)
    for name, (x, y) in _series(steps, "losses").items():
        axes[0].plot(x, y, label=name, linewidth=1)
    axes[0].set(title="loss", xlabel="step", yscale="log")
    for x, y in _series(steps, "accuracy").values():
        axes[1].plot(x, y, linewidth=0.6, alpha=0.4)
    epochs = [event for event in events if event["kind"] == "epoch"]
    for name, (x, y) in _series(epochs, "validation").items():
        axes[1].plot(x, y, marker="o", label=f"validation {name}")
    axes[1].set(title="top-1 (thin: training crops)", xlabel="step")
    axes[2].plot([e["step"] for e in steps], [e["learning_rate"] for e in steps])
    axes[2].set(title="learning rate", xlabel="step")
    for axis in axes[:2]:
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=6)
    return save_figure(figure, folder / FILE_NAME)
