"""An evaluation as Markdown and figures."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from san_core.frontier import Precision
from san_core.mode import Mode
from training.evaluation.evaluate import Evaluation
from training.plots import new_figure, save_figure
from training.report.markdown import accuracy_table, matrix_table, table, with_interval

_KINDS = {"weight": "scale", "bias": "shift", "running_mean": "mean", "running_var": "variance"}


def served_table(found: Evaluation) -> str:
    """Write modes and precisions side by side (Table 6's shape), with 95 % intervals."""
    measured = {(e.mode, e.precision) for e in found.entries}
    columns = [(m, p) for p in get_args(Precision) for m in Mode if (m, p) in measured]
    by_point = {(e.resolution, e.mode, e.precision): e for e in found.entries}
    body = []
    for side in found.tests:
        cells = []
        for mode, precision in columns:
            entry = by_point.get((side, mode, precision))
            cells.append(with_interval(entry.score) if entry else "-")
        body.append([str(side), "yes" if side in found.trained else "", *cells])
    heads = [mode.value if kind == "float" else f"{mode.value} {kind}" for mode, kind in columns]
    return table(["resolution", "trained", *heads], body)


def page(found: Evaluation) -> str:
    """Write the whole evaluation as Markdown."""
    parts = [
        f"# {found.name}\n",
        f"Top-1 in percent on {found.entries[0].score.n} images, ± half of the 95 % interval "
        "(Wilson).\n",
        "## What is served\n",
        served_table(found),
    ]
    if found.rows:
        parts += [
            "## Every row at every test resolution\n",
            "A row is the encoding and batch norm of one trained resolution; bold where it is the "
            "nearest (proxy inference).\n",
            accuracy_table(found.rows, found.trained, found.tests, found.shaded),
        ]
    for name, cells in found.panels.items():
        between = sorted({test for _, test in cells}, reverse=True)
        if between:
            parts += [
                f"## {name.capitalize()}\n",
                accuracy_table(cells, found.trained, between, found.shaded),
            ]
    if found.miss_hit:
        names = [str(side) for side in found.trained]
        parts += [
            "## Missed at one resolution, hit at another\n",
            matrix_table("miss \\ hit", names, found.miss_hit),
        ]
    if found.ratios:
        body = [[name, f"{value:.4f}"] for name, value in found.ratios.items()]
        parts += ["## Ratio of W to b\n", table(["convolution", "ratio"], body)]
    return "\n".join(parts)


def logarithmic(axis: object, tests: Sequence[int]) -> None:
    """Let a horizontal axis be logarithmic with the resolutions as its ticks."""
    axis.set_xscale("log", base=2)  # type: ignore[attr-defined]
    axis.set_xticks(tests, [str(t) for t in tests], rotation=60)  # type: ignore[attr-defined]
    axis.minorticks_off()  # type: ignore[attr-defined]


def draw_rows(found: Evaluation, path: Path) -> Path:
    """Draw the accuracy of every row over the test resolution (Fig. 1, one network)."""
    figure, (axis,) = new_figure(1, 1, 7, 5)
    for row in found.trained:
        scores = [found.rows[row, test] for test in found.tests]
        axis.plot(found.tests, [s.top1 for s in scores], marker=".", label=str(row))
    logarithmic(axis, found.tests)
    axis.set(xlabel="test resolution", ylabel="top-1", title=found.name)
    axis.legend(title="row")
    return save_figure(figure, path)


def draw_batch_norms(found: Evaluation, path: Path) -> Path:
    """Draw every layer's BN parameters by trained resolution (supplement)."""
    figure, axes = new_figure(2, 2, 11, 7)
    for axis, (kind, by_resolution) in zip(axes, found.batch_norms.items(), strict=True):
        for side, means in by_resolution.items():
            axis.plot(range(1, len(means) + 1), means, marker=".", label=side)
        axis.set(title=_KINDS[kind], xlabel="batch norm layer")
    axes[0].legend(title="resolution")
    return save_figure(figure, path)


def write(found: Evaluation, folder: Path) -> list[Path]:
    """Write JSON, Markdown and figures; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    facts, text = folder / "evaluation.json", folder / "evaluation.md"
    text.write_text(page(found))
    written = [facts, text]
    if found.rows:
        written.append(draw_rows(found, folder / "rows.png"))
    if found.batch_norms and all(
        math.isfinite(v) for kind in found.batch_norms.values() for m in kind.values() for v in m
    ):
        written.append(draw_batch_norms(found, folder / "batch_norms.png"))
    facts.write_text(json.dumps(found.to_json(), indent=1))  # last: it marks a finished evaluation
    return written
