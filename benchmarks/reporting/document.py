"""The pages on performance, kept up to date: what stands between markers comes from the results.

A marker pair `<!-- results:NAME -->` … `<!-- end:NAME -->` gets `results/NAME.md` and its plot;
`summary` gets every claim of every benchmark, `machine` the machine of the latest. Everything else
in the document is written by hand and stays.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.reporting import front_page
from benchmarks.reporting.results import RESULTS, ROOT, table

DOCUMENT = ROOT / "docs" / "performance_details.md"
FRONT = ROOT / "docs" / "performance.md"
README = ROOT / "README.md"
_MARKED = re.compile(r"(<!-- results:(\w+) -->\n).*?(<!-- end:\2 -->)", re.DOTALL)


def _load() -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    return [one for one in found if isinstance(one, dict)]


def _number(value: float | None, unit: str) -> str:
    return "never" if value is None else f"{value:.4g}{unit}"


def summary(results: list[dict[str, Any]]) -> str:
    """Every claim, what was measured, and whether it holds."""
    rows = [
        [
            check["claim"],
            _number(check["measured"], check.get("unit", "")),
            f"{'≥' if check['sense'] == '>=' else '≤'} {check['bound']:g}{check.get('unit', '')}",
            "yes" if check["holds"] else "**no**",
            f"`{result['name']}`",
        ]
        for result in results
        for check in result.get("checks", [])
        if check.keys() >= {"claim", "measured", "sense", "bound", "holds"}
    ]
    return table(["claim", "measured", "wanted", "holds", "benchmark"], rows) if rows else ""


def machine(results: list[dict[str, Any]]) -> str:
    """The machine of the latest run."""
    told = [one for one in results if "cpu" in (one.get("machine") or ()) and one.get("date")]
    if not told:
        return ""
    latest = max(told, key=lambda one: one["date"])
    facts = latest["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']:.0f} GB, {facts['system']}, "
        f"Python {facts['python']}, {versions}; {latest['date']}."
    )


def section(name: str, beside: Path) -> str:
    """A benchmark's Markdown with its plot, or a sentence that there is none yet."""
    text = RESULTS / f"{name}.md"
    if not text.exists():
        return f"Not measured yet: `make bench BENCH={name}`.\n"
    found = text.read_text().strip() + "\n"
    plot = RESULTS / f"{name}.png"
    if plot.exists() and plot.name not in found:
        link = "../" * len(beside.relative_to(ROOT).parts[:-1]) + str(plot.relative_to(ROOT))
        found += f"\n![{name}]({link})\n"
    return found


def fill(text: str, path: Path = DOCUMENT) -> str:
    """Replace what stands between the markers."""
    results = _load()

    def replace(match: re.Match[str]) -> str:
        begin, name, end = match.groups()
        if name == "summary":
            made = summary(results) + "\n"
        elif name == "readme":
            made = front_page.readme() + "\n"
        elif name == "front":
            made = front_page.rows() + "\n"
        elif name == "machine":
            made = machine(results) + "\n"
        else:
            made = section(name, path)
        return f"{begin}{made}{end}"

    return _MARKED.sub(replace, text)


def write() -> Path:
    """Write the pages again, and draw the README's figure."""
    front_page.figure()
    for path in (README, FRONT, DOCUMENT):
        path.write_text(fill(path.read_text(), path))
    return FRONT
