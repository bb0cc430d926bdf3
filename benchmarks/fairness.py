"""A greedy client at ten times the load, a polite one at a fifth of it: who gets what?

    python -m benchmarks.fairness [--quick] [--bundle FILE]

1x is what one fixed resolution holds: the most accurate one, in float, over HTTP. The clients are
told apart by their addresses, as a proxy forwards them. The greedy one runs at the lowest priority,
because its processor would be another machine's.
"""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from typing import Any

from benchmarks.driving.arrivals import Arrivals, schedule
from benchmarks.driving.open_loop import Sample, capacity, open_loop
from benchmarks.driving.photo import photo
from benchmarks.driving.wire import post
from benchmarks.reporting.options import parser, report
from benchmarks.reporting.results import Check, Report, table
from benchmarks.servers.our_service import OurService, classify

_BUDGET_MS = 50.0
_POLITE, _GREEDY = "10.0.0.1", "10.0.0.2"
_FACTORS = {_POLITE: 0.2, _GREEDY: 10.0}


@dataclass(frozen=True)
class Share:
    """What a client had."""

    sent: int
    answered: int
    in_time: int
    accuracy: float
    """Expected of answers in time, per request sent."""

    def row(self, name: str) -> list[str]:
        """For the table."""
        shares = (self.answered / self.sent, self.in_time / self.sent)
        return [name, str(self.sent), *(f"{100 * x:.1f}" for x in shares), f"{self.accuracy:.3f}"]


def share_of(samples: list[Sample]) -> Share:
    """Sum up one client's requests, as it saw them."""
    good = [s for s in samples if s.on_time(_BUDGET_MS) and s.answer is not None]
    accuracy = sum(float(s.answer.header("x-san-expected-accuracy") or 0) for s in good if s.answer)
    answered = sum(s.status == 200 for s in samples)
    return Share(len(samples), answered, len(good), accuracy / len(samples))


def send(port: int, body: bytes, address: str, rate: float, seconds: float) -> Share:
    """Poisson arrivals of one client."""
    request = post(f"/classify?budget_ms={_BUDGET_MS:g}", body, {"X-Forwarded-For": address})
    times = schedule(Arrivals.POISSON, _FACTORS[address] * rate, seconds, seed=1)
    return share_of(open_loop(port, times, [request]))


def _greedy(out: Any, *args: Any) -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    out.send(send(*args))


def both(port: int, body: bytes, rate: float, seconds: float) -> tuple[Share, Share]:
    """The two at once."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    other = context.Process(target=_greedy, args=(theirs, port, body, _GREEDY, rate, seconds))
    other.start()
    try:
        polite = send(port, body, _POLITE, rate, seconds)
        greedy: Share = mine.recv()
    finally:
        other.kill()
        other.join()
    return polite, greedy


def tell(made: Report, alone: Share, polite: Share, greedy: Share, rate: float) -> None:
    """The table and the claims."""
    made.data.update(rate=rate, alone=vars(alone), polite=vars(polite), greedy=vars(greedy))
    made.say(f"Budgets of {_BUDGET_MS:g} ms; 1x is {rate:.0f} requests/s.")
    rows = [
        alone.row("polite, alone"),
        polite.row("polite, beside the greedy one"),
        greedy.row("greedy"),
    ]
    made.say(table(["client", "sent", "answered %", "in time %", "accuracy per request"], rows))
    in_time = 100 * polite.in_time / polite.sent
    made.check(Check("the polite client's requests in time", in_time, ">=", 99, " %"))
    made.check(Check("its accuracy per request", polite.accuracy, ">=", 0.70))


def main() -> None:
    """Run it."""
    args = parser(__doc__.split("\n")[0]).parse_args()
    made = report("fairness", "A greedy client and a polite one", args)
    body, seconds = photo(), 2.0 if args.quick else 10.0
    with OurService(args.bundle, ("--trusted-proxies", "127.0.0.1/32")) as service:
        service.await_ready()
        best = service.best().resolution
        pinned = classify(body, resolution=best, precision="float")
        rate = capacity(service.port, [pinned], seconds=2.0)
        service.await_idle(0.3)
        alone = send(service.port, body, _POLITE, rate, seconds)
        tell(made, alone, *both(service.port, body, rate, seconds), rate)
    made.write()


if __name__ == "__main__":
    main()
