"""What a benchmark leaves behind: JSON with everything, Markdown for people, a plot.

`benchmarks/results/NAME.{json,md,png}`; a `--quick` run writes beside it, under `.cache/`, so that
a smoke test never replaces figures that are cited.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import numpy as np

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
QUICK = ROOT / ".cache" / "benchmarks"


@dataclass(frozen=True)
class Check:
    """A claim, what was measured, and the bound that makes it true."""

    claim: str
    measured: float
    sense: Literal[">=", "<="]
    bound: float
    unit: str = ""

    @property
    def holds(self) -> bool:
        """Whether it is true."""
        return self.measured >= self.bound if self.sense == ">=" else self.measured <= self.bound

    def line(self) -> str:
        """For the terminal."""
        word = "yes" if self.holds else "NO "
        sign = "≥" if self.sense == ">=" else "≤"
        return f"{word}  {self.claim}: {self.measured:.4g}{self.unit} ({sign} {self.bound:g})"


@dataclass(frozen=True)
class Summary:
    """Latencies in ms: pooled quantiles, and how far the rounds' medians lay apart."""

    p50: float
    p95: float
    p99: float
    low: float
    high: float
    n: int

    def cells(self) -> list[str]:
        """p50 with its spread, p95, p99."""
        return [f"{self.p50:.2f} ({self.low:.2f} to {self.high:.2f})", ms(self.p95), ms(self.p99)]


def ms(value: float) -> str:
    """Milliseconds with as many digits as mean something; a dash for what never happened."""
    if math.isnan(value):
        return "-"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def summarise(rounds: Sequence[Sequence[float]]) -> Summary:
    """Summarise latencies taken in several rounds."""
    rounds = [one for one in rounds if len(one)]
    pooled = np.concatenate([np.asarray(one) for one in rounds])
    medians = [float(np.median(one)) for one in rounds]
    p50, p95, p99 = (float(x) for x in np.percentile(pooled, (50, 95, 99)))
    return Summary(p50, p95, p99, min(medians), max(medians), len(pooled))


def ratio(slow: Sequence[Sequence[float]], fast: Sequence[Sequence[float]]) -> list[float]:
    """Slow over fast, round by round: [median, lowest, highest]."""
    each = [
        float(np.median(a) / np.median(b))
        for a, b in zip(slow, fast, strict=True)
        if len(a) and len(b)
    ]
    return [float(np.median(each)), min(each), max(each)]


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; all but the first column are numbers and stand on the right."""
    lines = [list(header), ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def machine() -> dict[str, Any]:
    """What was measured on, and how busy it was."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(x.partition(":")[2].strip() for x in lines if x.startswith("model name"))
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    except (OSError, StopIteration, ValueError):
        memory = 0.0
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gb": round(memory, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("torch", "openvino", "numpy", "uvicorn")},
        "load_average": [round(x, 2) for x in os.getloadavg()],
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _plain(value: Any) -> Any:
    """The same with null for what JSON has no number for, and numpy's numbers as Python's."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass
class Report:
    """Collects a benchmark's results and writes them."""

    name: str
    title: str
    command: str
    quick: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    sections: list[str] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=machine)
    started: float = field(default_factory=time.time)

    def say(self, text: str) -> None:
        """A paragraph or a table, to the terminal now and to the Markdown later."""
        self.sections.append(text)
        print(f"\n{text}\n", flush=True)

    def check(self, check: Check) -> None:
        """Note a claim, and say whether it holds."""
        self.checks.append(check)
        print(check.line(), flush=True)

    def write(self, draw: Callable[[Path], None] | None = None) -> Path:
        """Write the JSON, the Markdown and, with `draw`, the plot; returns the Markdown."""
        directory = QUICK if self.quick else RESULTS
        directory.mkdir(parents=True, exist_ok=True)
        seconds = time.time() - self.started
        whole = {
            "name": self.name,
            "title": self.title,
            "command": self.command,
            "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.started)),
            "seconds": round(seconds, 1),
            "quick": self.quick,
            "machine": self.machine,
            "settings": self.settings,
            "checks": [{**asdict(check), "holds": check.holds} for check in self.checks],
            **self.data,
        }
        json_path = directory / f"{self.name}.json"
        text = json.dumps(_plain(whole), indent=1, default=str, allow_nan=False)
        json_path.write_text(text + "\n")
        head = f"`{self.command}`, {whole['date']}, {seconds:.0f} s, {self.machine['cores']} cores"
        path = directory / f"{self.name}.md"
        path.write_text("\n\n".join([f"{head}.", *self.sections]) + "\n")
        if draw is not None:
            draw(directory / f"{self.name}.png")
        print(f"{path} ({seconds:.0f} s)", flush=True)
        return path
