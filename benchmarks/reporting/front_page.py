"""The six rows of docs/performance.md and the figure of the README, from the stored results.

Nothing is measured here: `python -m benchmarks.all --document` writes both. A row whose benchmark
has no result says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.reporting.results import RESULTS, ROOT, table

FIGURE = ROOT / "docs" / "images" / "in_time.svg"
_THROUGHPUT = "throughput over the best peer's"
_LOADS = (0.5, 0.8, 1.0, 1.5, 2.0)
_LABEL = 8.0
"""How high a label of the figure is, in points of percentage."""


def read(name: str) -> dict[str, Any] | None:
    """A benchmark's result, if there is one."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def check(result: dict[str, Any], claim: str) -> float:
    """What was measured for a claim."""
    return next(float(c["measured"]) for c in result["checks"] if c["claim"] == claim)


def on_time(result: dict[str, Any], server: str, load: float) -> float:
    """The share of requests answered in time, over the rounds, with Poisson arrivals."""
    found = [
        run["on_time"]
        for run in result["runs"]
        if run["arrivals"] == "poisson" and run["load"] == load and (run["server"] == server)
    ]
    return 100 * median(found)


OURS = "san-serve"


def peers(result: dict[str, Any], load: float) -> list[str]:
    """The other servers of a run, the one with the most answers in time first."""
    names = {run["server"] for run in result["runs"]} - {OURS}
    return sorted(names, key=lambda name: (-on_time(result, name, load), name))


def _load(at: float) -> Callable[[dict[str, Any]], tuple[str, str]]:
    def found(result: dict[str, Any]) -> tuple[str, str]:
        peer = peers(result, at)[0]
        return (f"{on_time(result, OURS, at):.1f} %", f"{on_time(result, peer, at):.1f} % ({peer})")

    return found


ROWS: tuple[tuple[str, str, Callable[[dict[str, Any]], tuple[str, str]]], ...] = (
    (
        "one client, budgets of 5 to 100 ms: met",
        "budgets",
        lambda r: (f"{check(r, 'feasible budgets met, one client'):.1f} %", "no peer has budgets"),
    ),
    ("as many requests as the best peer can serve, 50 ms: in time", "load", _load(1.0)),
    ("twice as many, 50 ms: in time", "load", _load(2.0)),
    (
        "one client, same network in float: median time of the fastest peer, over ours",
        "end_to_end",
        lambda r: (f"{check(r, 'p50 of the fastest peer with OpenVINO, over ours'):.2f}", "1"),
    ),
    (
        "the same, ours in int8",
        "end_to_end",
        lambda r: (
            f"{check(r, 'p50 of the fastest peer with OpenVINO, over san-serve int8'):.2f}",
            "1",
        ),
    ),
    (
        "requests per second, float, over the best peer's",
        "end_to_end",
        lambda r: (f"{check(r, _THROUGHPUT):.2f}", "1"),
    ),
)


def rows() -> str:
    """The table."""
    found = []
    for what, name, read_row in ROWS:
        result = read(name)
        ours, peer = read_row(result) if result else ("not measured yet", "-")
        found.append([what, ours, peer, f"`{name}`"])
    return table(["what", "san-serve", "compared with", "benchmark"], found)


def _accuracy(value: float) -> str:
    return f"{100 * value:.1f} %" if value else "no answer in time"


def readme() -> str:
    """The README's rows: in time and accuracy at 1x and 2x, of every server in the run."""
    result = read("load")
    if result is None:
        return "Not measured yet: `make bench BENCH=load`.\n"
    found = [
        [
            f"**{server}**" if server == OURS else server,
            *(f"{on_time(result, server, load):.1f} %" for load in (1.0, 2.0)),
            *(_accuracy(accuracy(result, server, load)) for load in (1.0, 2.0)),
        ]
        for server in (OURS, *peers(result, 1.0))
    ]
    head = ["requests with a budget of 50 ms", "in time at 1x load", "at 2x"]
    tried = ", ".join(dict.fromkeys(name.split()[0] for name in result["capacities"]))
    wait = result.get("longest_wait_ms")
    queues = (
        "It queues without a limit, as it does by default."
        if len(peers(result, 1.0)) == 1
        else "They queue without a limit, as they do by default."
        if wait is None
        else f"Triton is told to refuse what has waited for {wait:.0f} ms; the others queue "
        "without a limit, as they do by default."
    )
    return (
        table([*head, "accuracy of the answers at 1x", "at 2x"], found)
        + f"\n\n1x is what the best of the peers ({tried}) can serve. {queues} "
        f"`{result['command']}`, {result['date']}."
    )


def accuracy(result: dict[str, Any], server: str, load: float) -> float:
    """The mean expected accuracy of the answers, over the rounds that had some in time; Poisson."""
    rounds = [
        run["accuracy"]
        for run in result["runs"]
        if run["arrivals"] == "poisson"
        and run["load"] == load
        and run["server"] == server
        and run["on_time"]
    ]
    return median(rounds) if rounds else 0.0


def spread(ends: dict[str, float], apart: float) -> dict[str, float]:
    """Where the labels of lines go that end there, so that none lies on another."""
    found: dict[str, float] = {}
    lowest = -math.inf
    for name, end in sorted(ends.items(), key=lambda entry: entry[1]):
        found[name] = max(end, lowest)
        lowest = found[name] + apart
    return found


def figure(path: Path = FIGURE) -> None:
    """Requests answered in time as load grows, ours and the peers'."""
    result = read("load")
    if result is None:
        return
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "san-serve", "font.size": 12, "svg.fonttype": "none"})
    from matplotlib import pyplot

    shape, axes = pyplot.subplots(figsize=(8, 3.2))
    styles = [(peer, "#9aa6b8", 2.5) for peer in peers(result, 1.0)]
    ends = {}
    for server, colour, width in (*styles, (OURS, "#3d50d0", 3.5)):
        values = [on_time(result, server, load) for load in _LOADS]
        axes.plot(_LOADS, values, "o-", color=colour, linewidth=width)
        ends[server] = values[-1]
    for server, height in spread(ends, _LABEL).items():
        axes.annotate(
            server, (_LOADS[-1], height), (8, 0), textcoords="offset points", va="center",
            weight="bold", color="#3d50d0" if server == OURS else "#9aa6b8",
        )  # fmt: skip
    axes.set_xlabel("load, as a multiple of what the best peer can serve")
    axes.set_ylabel("answered within 50 ms")
    axes.set_ylim(-3, 106)
    axes.set_xlim(0.45, 2.35)
    axes.set_xticks(_LOADS, [f"{load:g}x" for load in _LOADS])
    axes.set_yticks([0, 25, 50, 75, 100], [f"{share} %" for share in (0, 25, 50, 75, 100)])
    axes.grid(axis="y", color="#e1e5ec")
    axes.spines[["top", "right"]].set_visible(False)
    shape.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(shape)
