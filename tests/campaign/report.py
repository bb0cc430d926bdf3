"""The verdict on each attack: what the polite client was promised, and what was broken of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign.polite import Verdict, together

LIMIT_MB = 4000
MOST_CPU_S = 0.3
"""For one request."""


@dataclass
class Seen:
    """One spell: the polite client's figures, the service's memory, and the machine's state."""

    verdict: Verdict
    memory_mb: float
    stolen: float
    attempts: int = 0
    """Connections that the attacker opened."""
    statuses: dict[str, int] = field(default_factory=dict)
    """What the attacker was answered; 0 where the connection was closed."""
    is_stuck: bool = False
    """An answer to the attacker never came."""
    cost_s: float = 0.0
    restarts: int = 0
    """Processes that ended unasked, or were killed for memory."""
    may_lose: bool = False
    """A worker is killed, and takes what it held with it."""


def complaints(seen: Seen, quiet: Verdict) -> list[str]:
    """Which promises were broken."""
    verdict = seen.verdict
    checks = {
        "answered": verdict.answered_share >= 0.99,
        "in time": verdict.in_time_share >= 0.97,
        "accuracy": verdict.accuracy >= 0.70,
        "p99": verdict.p99_ms <= 2 * quiet.p99_ms,
        "5xx or lost": (not verdict.failed or seen.may_lose)
        and not any(status.startswith("5") for status in seen.statuses),
        "stuck": not seen.is_stuck,
        "restart": not seen.restarts,
        "memory": seen.memory_mb <= LIMIT_MB,
        "cost": seen.cost_s <= MOST_CPU_S,
    }
    return [name for name, holds in checks.items() if not holds]


class Report:
    """A line for each attack as it ends, and all figures in a file if one is named."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._rows: list[dict[str, Any]] = []

    def add(self, name: str, seen: Seen, alone: Sequence[Seen]) -> None:
        """Judge an attack by what the polite client saw when it was alone."""
        quiet = together([x.verdict for x in alone])
        if not self._rows:
            print_row("(nothing)", Seen(quiet, alone[-1].memory_mb, alone[-1].stolen), [])
        problems = complaints(seen, quiet)
        print_row(name, seen, problems)
        verdict = seen.verdict
        self._rows.append(
            {
                "attack": name,
                "broken": problems,
                "answered": verdict.answered_share,
                "in_time": verdict.in_time_share,
                "accuracy": verdict.accuracy,
                "p99_ms": verdict.p99_ms,
                "quiet_p99_ms": quiet.p99_ms,
                "memory_mb": seen.memory_mb,
                "cost_s": seen.cost_s,
                "stolen": seen.stolen,
                "attempts": seen.attempts,
                "statuses": seen.statuses,
                "restarts": seen.restarts,
            }
        )

    def leave_out(self, name: str, why: str) -> None:
        """It was not run, so nothing is known of it."""
        print(f"{name:28} NOT RUN: {why}", flush=True)
        self._rows.append({"attack": name, "broken": ["not run"]})

    def end(self) -> int:
        """Keep the figures; 1 if anything was broken."""
        if self._path is not None:
            self._path.write_text(json.dumps(self._rows, indent=1))
        broken = sum(bool(row["broken"]) for row in self._rows)
        print(f"{len(self._rows) - broken} of {len(self._rows)} attacks did no harm.")
        return min(1, broken)


def print_row(name: str, seen: Seen, broken: list[str]) -> None:
    """One line of the table."""
    verdict = seen.verdict
    print(
        f"{name:28} answered {verdict.answered_share:6.1%}  in time {verdict.in_time_share:6.1%}  "
        f"accuracy {verdict.accuracy:.3f}  p99 {verdict.p99_ms:6.1f} ms  {seen.memory_mb:5.0f} MB  "
        f"{seen.cost_s:4.2f} s  {seen.attempts:5} attempts  stolen {seen.stolen:5.1%}  "
        f"{'BROKEN: ' + ', '.join(broken) if broken else 'held'}"
        f"{' ' + str(verdict.failures) if verdict.failures else ''}",
        flush=True,
    )
