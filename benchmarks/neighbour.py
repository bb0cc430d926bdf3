"""A neighbour takes one core from before the start: what is left, and how soon it is forgotten?

    python -m benchmarks.neighbour [--quick] [--bundle FILE]

A busy loop is pinned to one core, then the service starts and measures itself beside it. One client
sends requests with a budget of 10 ms. Then the loop ends, and later the service is restarted with
what it kept on disk.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.driving.photo import photo
from benchmarks.driving.wire import Client
from benchmarks.reporting.options import parser, report
from benchmarks.reporting.results import Check, Report, table
from benchmarks.servers.our_service import OurService, classify

_BUDGET_MS = 10.0
_LOOP = "import os\nos.sched_setaffinity(0, {%d})\nwhile True: pass"
_BACK_S = 5.0
"""Within which figures must be those of a quiet host again."""
_ALIKE = 0.005
"""Accuracies that differ by less are the same."""


@dataclass
class Seen:
    """What one client got for its budget."""

    accuracies: list[float] = field(default_factory=list)
    in_time: int = 0

    @property
    def accuracy(self) -> float:
        """Mean of what was expected of the answers."""
        return sum(self.accuracies) / len(self.accuracies)

    @property
    def share(self) -> float:
        """Of the answers that the client had in time, in percent."""
        return 100 * self.in_time / len(self.accuracies)


def ask(service: OurService, body: bytes, seconds: float) -> Seen:
    """One request after the other."""
    seen, request = Seen(), classify(body, budget_ms=f"{_BUDGET_MS:g}")
    with Client(service.port) as client:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            took_ms, answer = client.time(request)
            seen.accuracies.append(float(answer.header("x-san-expected-accuracy") or 0))
            seen.in_time += answer.status == 200 and took_ms <= _BUDGET_MS
    return seen


@contextlib.contextmanager
def busy_core() -> Iterator[None]:
    """Take the first of this process's cores."""
    core = min(os.sched_getaffinity(0))
    loop = subprocess.Popen([sys.executable, "-c", _LOOP % core])
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


def tell(made: Report, seen: dict[str, Seen]) -> None:
    """The table and the claims."""
    made.data.update({k: {"accuracy": s.accuracy, "in_time": s.share} for k, s in seen.items()})
    made.say(f"One client, a budget of {_BUDGET_MS:g} ms, in time as the client saw it.")
    rows = [
        [name, f"{s.accuracy:.3f}", f"{s.share:.2f}", len(s.accuracies)] for name, s in seen.items()
    ]
    made.say(table(["when", "expected accuracy", "in time %", "requests"], rows))
    beside, soon, quiet, again = seen.values()
    made.check(Check("beside a busy core: accuracy", beside.accuracy, ">=", 0.60))
    made.check(Check("beside a busy core: in time", beside.share, ">=", 95, " %"))
    for name, figures in (("soon after", soon), ("after a restart", again)):
        lost = quiet.accuracy - figures.accuracy
        made.check(Check(f"{name}: accuracy below the quiet one", lost, "<=", _ALIKE))


def main() -> None:
    """Run it."""
    args = parser(__doc__.split("\n")[0]).parse_args()
    made = report("neighbour", "A busy neighbour", args)
    body, seconds = photo(), 2.0 if args.quick else 10.0
    with tempfile.TemporaryDirectory() as kept:
        options = ("--cache-dir", kept)
        service = OurService(args.bundle, options)
        with contextlib.ExitStack() as stack:
            with busy_core():
                stack.enter_context(service)
                service.await_ready()
                beside = ask(service, body, seconds)
            ask(service, body, _BACK_S)
            soon = ask(service, body, 1.0)
            time.sleep(seconds)
            quiet = ask(service, body, seconds)
        with OurService(args.bundle, options) as service:
            service.await_ready()
            again = ask(service, body, 2.0)
    seen = {
        "beside a busy core": beside,
        f"{_BACK_S:g} s after it went": soon,
        "quiet": quiet,
        "after a restart": again,
    }
    tell(made, seen)
    made.write()


if __name__ == "__main__":
    main()
