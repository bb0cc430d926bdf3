"""Draw the queries of the dashboards from what a Prometheus has stored.

    python docs/images/render_dashboards.py http://localhost:9090 --minutes 5

A drawing of our own with matplotlib, not a picture of Grafana: the same panels, titles, units and
expressions, read from docker/grafana/dashboards.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
DASHBOARDS = HERE.parents[1] / "docker" / "grafana" / "dashboards"
COLUMNS = 3
TOLD = {
    "latency-and-budgets": (
        "Budgets",
        "Budgets kept",
        "Latency of answers",
        "Outcomes",
        "Where the time goes",
        "Queue",
    ),
    "accuracy": ("Expected accuracy served", "Resolution mix", "Accuracy given up to load"),
    "weights": ("Hits and misses", "Bytes", "Time to make a network ready"),
}
"""Panels that tell what a burst does; the dashboards have more."""
GOOD, BAD, NEUTRAL, WARNING = "#2f9e62", "#d64545", "#9aa0a6", "#e8a33d"
COLOURS = {
    "met": GOOD,
    "answered": GOOD,
    "missed": BAD,
    "late": WARNING,
    "refused": WARNING,
    "overloaded": WARNING,
    "expired": BAD,
    "rejected": NEUTRAL,
    "impossible": NEUTRAL,
    "infeasible": NEUTRAL,
    "none": "#cfd8dc",
    "failed": BAD,
    "unavailable": NEUTRAL,
    "disconnected": NEUTRAL,
}
"""By what a series is about; others take the default colours."""


def ask(url: str, expr: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
    """The series of an expression."""
    query = {"query": expr, "start": start, "end": end, "step": step}
    address = f"{url}/api/v1/query_range?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(address, timeout=60) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read())["data"]["result"]
    return found


def scaled(unit: str) -> tuple[float, str]:
    """Factor and name for an axis."""
    units = {"s": (1000, "ms"), "percentunit": (100, "%"), "decbytes": (1e-6, "MB")}
    return units.get(unit, (1, {"reqps": "req/s", "ops": "1/s"}.get(unit, "")))


def legend(pattern: str, labels: dict[str, str]) -> str:
    """Grafana's {{label}} filled in."""
    if pattern == "__auto":
        return ""
    return re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), pattern)


def draw(axes: Any, panel: dict[str, Any], url: str, start: float, end: float) -> None:
    """One panel."""
    unit = panel["fieldConfig"]["defaults"]["unit"]
    factor, name = scaled(unit)
    stacked = "stacking" in panel["fieldConfig"]["defaults"]["custom"]
    right = {rule["matcher"]["options"] for rule in panel["fieldConfig"]["overrides"]}
    lines: list[tuple[str, list[float], list[float]]] = []
    for target in panel["targets"]:
        if target["refId"] in right:
            continue
        expr = target["expr"].replace("$__rate_interval", "30s").replace("$job", "san-serve")
        expr = expr.replace("$namespace", ".*").replace("$instance", ".*")
        for series in ask(url, expr, start, end, 5):
            points = [(float(t) - start, float(v) * factor) for t, v in series["values"]]
            label = legend(target["legendFormat"], series["metric"])
            if not any(value > 0 for _, value in points):
                continue
            lines.append((label, [p[0] for p in points], [p[1] for p in points]))
    if stacked and lines:
        times = sorted({t for _, xs, _ in lines for t in xs})
        rows = [[dict(zip(xs, ys, strict=True)).get(t, 0.0) for t in times] for _, xs, ys in lines]
        names = [label for label, _, _ in lines]
        colours = [COLOURS.get(name) for name in names]
        given = {"colors": colours} if all(colours) else {}
        axes.stackplot(times, rows, labels=names, alpha=0.85, **given)
    else:
        for label, xs, ys in lines:
            axes.plot(xs, ys, label=label, linewidth=1.4, color=COLOURS.get(label))
    if not lines:
        empty = panel["fieldConfig"]["defaults"]["noValue"]
        axes.text(0.5, 0.5, empty, ha="center", transform=axes.transAxes, color="grey")
    axes.set_title(panel["title"], fontsize=9, loc="left")
    axes.set_ylabel(name, fontsize=7)
    axes.set_xlim(0, end - start)
    if unit == "percentunit":  # the last percent is what an objective is about
        shown = [y for _, _, ys in lines for y in ys if y == y]
        low, high = min(shown, default=0.0), max(shown, default=100.0)
        axes.set_ylim(*((low - 2, 100.2) if high > 50 else (0, 1.3 * high)))
    else:
        axes.set_ylim(0, None)
    axes.tick_params(labelsize=6)
    axes.grid(alpha=0.25)
    if any(label for label, _, _ in lines):
        axes.legend(fontsize=6, ncols=4, loc="lower left", bbox_to_anchor=(0, -0.34), frameon=False)


def draw_all(url: str, start: float, end: float) -> None:
    """One picture per dashboard."""
    for path in sorted(DASHBOARDS.glob("*.json")):
        board = json.loads(path.read_text())
        by_title = {panel["title"]: panel for panel in board["panels"]}
        shown = [by_title[title] for title in TOLD[path.stem]]
        height = -(-len(shown) // COLUMNS)
        figure, grid = plt.subplots(height, COLUMNS, figsize=(13, 2.9 * height), squeeze=False)
        for axes, panel in zip(grid.flat, shown, strict=True):
            draw(axes, panel, url, start, end)
        figure.suptitle(f"{board['title']} (drawn from Prometheus data, seconds)", fontsize=11)
        figure.tight_layout(rect=(0, 0, 1, 0.98))
        target = HERE / f"dashboard-{path.stem}.png"
        figure.savefig(target, dpi=100)
        plt.close(figure)
        sys.stdout.write(f"{target.name}\n")


def main() -> int:
    """Draw the last minutes of a Prometheus."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--end", type=float, default=time.time(), help="seconds since 1970")
    args = parser.parse_args()
    draw_all(args.url, args.end - 60 * args.minutes, args.end)
    return 0


if __name__ == "__main__":
    sys.exit(main())
