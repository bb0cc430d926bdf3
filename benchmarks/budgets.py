"""Are budgets kept? One client with several budgets, then overload, then a soak.

    python -m benchmarks.budgets [--quick] [--bundle FILE] [--soak-requests N] [--soak-seconds S]

Against the real service in a process of its own, over a real socket on the loopback interface.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.driving import overload, soak
from benchmarks.driving.photo import photo
from benchmarks.driving.wire import Client
from benchmarks.reporting.options import parser, report
from benchmarks.reporting.plotting import OURS, axes, save
from benchmarks.reporting.results import Check, Report, ms, summarise, table
from benchmarks.servers.our_service import OurService, classify

BUDGETS_MS = (5.0, 10.0, 20.0, 50.0, 100.0)


@dataclass
class Tally:
    """What one budget bought."""

    budget_ms: float
    feasible: bool
    rounds: list[list[float]] = field(default_factory=list)
    choices: Counter[tuple[str, str]] = field(default_factory=Counter)
    met: int = 0
    in_time: int = 0
    n: int = 0

    def add(self, took_ms: float, answer: Any) -> None:
        """Count one answer."""
        self.n += 1
        self.rounds[-1].append(took_ms)
        if answer.status == 200:
            self.met += answer.header("x-san-budget-met") == "true"
            self.in_time += took_ms <= self.budget_ms
            resolution = answer.header("x-san-resolution") or "?"
            self.choices[resolution, answer.header("x-san-expected-accuracy") or "nan"] += 1


def one_client(service: OurService, body: bytes, rounds: int, seconds: float) -> list[Tally]:
    """Rounds over all budgets, forwards and backwards, each budget for so long in each round."""
    smallest = min(point.smallest_budget_ms for point in service.points() if point.frontier)
    print(f"/resolutions calls {smallest:.1f} ms the smallest feasible budget", flush=True)
    tallies = [Tally(budget, budget >= smallest) for budget in BUDGETS_MS]
    with Client(service.port) as client:
        for number in range(rounds):
            for tally in tallies if number % 2 == 0 else reversed(tallies):
                request = classify(body, budget_ms=f"{tally.budget_ms:g}")
                tally.rounds.append([])
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    tally.add(*client.time(request))
            print(f"  round {number + 1} of {rounds}", flush=True)
    return tallies


def tell(tallies: list[Tally], made: Report) -> None:
    """The table and the claim."""
    rows, facts = [], []
    for tally in tallies:
        (resolution, _), often = (tally.choices.most_common(1) or [(("-", "nan"), 0)])[0]
        mean = sum(float(a) * n for (_, a), n in tally.choices.items()) / (tally.n or 1)
        summary = summarise(tally.rounds)
        rows.append(
            [
                f"{tally.budget_ms:g} ms",
                "yes" if tally.feasible else "no",
                f"{resolution} ({100 * often / (tally.n or 1):.0f} %)",
                f"{mean:.3f}",
                *(ms(value) for value in (summary.p50, summary.p99)),
                f"{100 * tally.met / tally.n:.2f}",
                f"{100 * tally.in_time / tally.n:.2f}",
                tally.n,
            ]
        )
        facts.append(
            {
                "budget_ms": tally.budget_ms,
                "feasible": tally.feasible,
                "choices": {f"{r} ({a})": n for (r, a), n in tally.choices.items()},
                "expected_accuracy": mean,
                "p50": summary.p50,
                "p99": summary.p99,
                "met": tally.met / tally.n,
                "in_time": tally.in_time / tally.n,
                "n": tally.n,
            }
        )
    made.data["budgets"] = facts
    made.say(
        "One client, a 500 px JPEG. *Met* is what the budget counts (first byte received to first "
        "byte sent), *in time* what the client saw."
    )
    head = ["budget", "feasible", "resolution (share)", "expected accuracy", "p50 ms", "p99 ms"]
    made.say(table([*head, "met %", "in time %", "requests"], rows))
    counted = [tally for tally in tallies if tally.feasible]
    met, n = sum(t.met for t in counted), sum(t.n for t in counted)
    made.check(Check("feasible budgets met, one client", 100 * met / (n or 1), ">=", 99, " %"))


def draw(made: Report, path: Path) -> None:
    """Accuracy and latency over the budget."""
    facts = made.data["budgets"]
    figure, (left, right) = axes(2)
    budgets = [fact["budget_ms"] for fact in facts]
    left.plot(budgets, [fact["expected_accuracy"] for fact in facts], "o-", color=OURS)
    left.set(xscale="log", xlabel="budget, ms", ylabel="expected accuracy")
    right.plot(budgets, budgets, ":", color="grey", label="budget")
    right.plot(budgets, [fact["p50"] for fact in facts], "o-", color=OURS, label="p50")
    right.plot(budgets, [fact["p99"] for fact in facts], "o--", color=OURS, label="p99")
    right.set(xscale="log", yscale="log", xlabel="budget, ms", ylabel="latency, ms")
    right.legend(frameon=False)
    for one in (left, right):
        one.set_xticks(budgets, [f"{budget:g}" for budget in budgets], minor=False)
        one.minorticks_off()
    save(figure, path)


def main() -> None:
    """Run it."""
    options = parser(__doc__.split("\n")[0])
    options.add_argument("--soak-requests", type=int, default=100_000)
    options.add_argument("--soak-seconds", type=float, default=600.0)
    options.add_argument("--only", choices=("budgets", "overload", "soak"))
    args: argparse.Namespace = options.parse_args()
    made = report("budgets", "Budgets, overload, soak", args)
    quick = args.quick
    body = photo()
    with OurService(args.bundle) as service:
        service.await_ready()
        if args.only in (None, "budgets"):
            tell(one_client(service, body, 2 if quick else 6, 0.5 if quick else 1.2), made)
        if args.only in (None, "overload"):
            overload.run(service, body, made, 2.0 if quick else 12.0)
        if args.only in (None, "soak"):
            count = min(args.soak_requests, 300 if quick else args.soak_requests)
            soak.run(service, made, count, 5.0 if quick else args.soak_seconds)
    made.write((lambda path: draw(made, path)) if "budgets" in made.data else None)


if __name__ == "__main__":
    main()
