"""The reproduction as a page: setup, tables, figure, and what agrees with the paper."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from san_core.resolution import nearest
from training.config import Recipe
from training.evaluation.accuracy import Score
from training.evaluation.evaluate import AFTER, BEFORE, Cells
from training.plots import new_figure, save_figure
from training.report import comparison
from training.report.comparison import Finding
from training.report.evaluation_page import logarithmic
from training.report.markdown import accuracy_table, matrix_table, table, with_interval

ENVELOPE = "envelope.png"
_SCALE = (
    "The paper trained for 120 epochs on ImageNet. At this scale the page tests the code: a claim "
    "that does not show here is not refuted."
)


@dataclass
class Results:
    """What all networks of the comparison scored."""

    trained: tuple[int, ...]
    tests: tuple[int, ...]
    san: Cells
    baselines: Cells
    without: Cells
    shared: Cells
    served: dict[tuple[int, str], Score]
    """SAN by (resolution, mode)."""
    panels: dict[str, Cells]
    miss_hit: list[list[float]]

    @property
    def shaded(self) -> dict[int, int]:
        """By test resolution, the row that the paper shades."""
        return {test: nearest(test, self.trained) for test in self.tests}


def _score(entry: Mapping[str, Any]) -> Score:
    n = entry["n"]
    return Score(n, round(entry["top1"] * n), round(entry["top5"] * n))


def _cells(entries: Sequence[Mapping[str, Any]]) -> Cells:
    return {(e["row"], e["resolution"]): _score(e) for e in entries}


def read_results(folder: Path, trained: Sequence[int], tests: Sequence[int]) -> Results:
    """Read the evaluations of all networks below a folder."""

    def facts(name: str) -> dict[str, Any]:
        path = folder / name / "evaluation" / "evaluation.json"
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    san = facts("san")
    baselines: Cells = {}
    for side in trained:
        baselines |= _cells(facts(f"baseline_{side}")["rows"])
    return Results(
        trained=tuple(trained),
        tests=tuple(tests),
        san=_cells(san["rows"]),
        baselines=baselines,
        without=_cells(facts("no_distillation")["rows"]),
        shared=_cells(facts("shared_batch_norm")["rows"]),
        served={(e["resolution"], e["mode"]): _score(e) for e in san["entries"]},
        panels={name: _cells(cells) for name, cells in san["panels"].items()},
        miss_hit=san["miss_hit"],
    )


def findings(results: Results) -> list[Finding]:
    """Put the paper's claims to the results."""
    trained = results.trained
    return [
        comparison.diagonal(results.san, results.baselines, trained),
        comparison.off_diagonal(results.san, results.baselines, trained, results.tests),
        comparison.distillation(results.san, results.without, trained),
        comparison.shared_batch_norm(results.without, results.shared, trained),
        comparison.modes(results.served, trained),
    ]


def draw_envelope(results: Results, path: Path) -> Path:
    """Draw Fig. 1: SAN's rows and the baselines over the test resolution."""
    figure, (axis,) = new_figure(1, 1, 8, 5.5)
    for number, row in enumerate(results.trained):
        for cells, style, mark, name in (
            (results.san, "-", "^", "SAN"),
            (results.baselines, "--", "s", "baseline"),
        ):
            values = [100 * cells[row, test].top1 for test in results.tests]
            color = f"C{number}"
            axis.plot(results.tests, values, style, color=color, label=f"{name} {row}", lw=1.2)
            axis.plot([row], [100 * cells[row, row].top1], mark, color=color)
    logarithmic(axis, results.tests)
    axis.set(xlabel="test resolution", ylabel="top-1 in percent")
    axis.legend(fontsize=7, ncols=2)
    return save_figure(figure, path)


def page(results: Results, recipe: Recipe, setup: str, command: str, image: str = ENVELOPE) -> str:
    """Write the page."""
    n = next(iter(results.san.values())).n
    checked = findings(results)
    diagonal = [
        [
            str(side),
            *(
                with_interval(cells[side, side])
                for cells in (results.baselines, results.san, results.without, results.shared)
            ),
        ]
        for side in results.trained
    ]
    head = ["resolution", "baseline", "SAN", "SAN without distillation", "… and shared batch norm"]
    between = sorted({test for _, test in results.panels.get(BEFORE, {})}, reverse=True)
    parts = [
        "# The paper at small scale\n",
        setup,
        f"\n{recipe.architecture}, S = {{{', '.join(map(str, results.trained))}}}, "
        f"{recipe.epochs} epochs, batches of {recipe.batch_size}, {recipe.optimizer}, learning "
        f"rate {recipe.learning_rate}, weight decay {recipe.weight_decay}, seed {recipe.seed}. "
        f"Top-1 in percent on {n} validation images; ± is half of the 95 % Wilson interval. One "
        "seed: the intervals cover the sampling of images, not of trainings.\n",
        f"```\n{command}\n```\n",
        f"{_SCALE}\n",
        "## What agrees and what does not\n",
        table(
            ["the paper says", "here", "agrees"],
            [[f.claim, f.outcome, "yes" if f.agrees else "**no**"] for f in checked],
        ),
        "## At the trained resolutions\n",
        table(head, diagonal),
        f"![accuracy over test resolution]({image})\n",
    ]
    titles = {
        "Individually trained networks (Table 1, left)": results.baselines,
        "SAN (Table 1, right)": results.san,
        "SAN without distillation (Table 3, left)": results.without,
        "SAN without distillation, shared batch norm (Table 3, right)": results.shared,
    }
    for title, cells in titles.items():
        shown = accuracy_table(cells, results.trained, results.tests, results.shaded)
        parts += [f"## {title}\n", shown]
    for name in (BEFORE, AFTER):
        if name in results.panels and between:
            cells = results.panels[name]
            shown = accuracy_table(cells, results.trained, between, results.shaded)
            parts += [f"## SAN, {name} (Table 2)\n", shown]
    parts += ["## SAN, the modes side by side (Table 6)\n", _modes_table(results)]
    names = [str(side) for side in results.trained]
    parts += [
        "## SAN, missed at one resolution and hit at another\n",
        matrix_table("miss \\ hit", names, results.miss_hit),
    ]
    return "\n".join(parts)


def _modes_table(results: Results) -> str:
    modes = ("proxy", "ideal", "data_free")
    body = [
        [str(test), *(with_interval(results.served[test, mode]) for mode in modes)]
        for test in results.tests
    ]
    return table(["resolution", *modes], body)
