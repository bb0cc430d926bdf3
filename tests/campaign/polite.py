"""A polite client: a photograph with a budget of 50 ms, ten times a second. Its figures judge.

`python -m tests.campaign.polite PORT SECONDS` is one in a process of its own,
whose interpreter does nothing else; it prints its verdict as JSON.
"""

from __future__ import annotations

import http.client
import json
import math
import sys
import threading
import time
from dataclasses import asdict, dataclass, field

from benchmarks.driving.photo import photo

BUDGET_MS = 50.0
PERIOD_S = 0.1


@dataclass
class Verdict:
    """What one client saw."""

    answered: int = 0
    in_time: int = 0
    refused: int = 0
    failed: int = 0
    accuracies: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    """By kind."""

    def fail(self, why: str) -> None:
        """Count a failure."""
        self.failed += 1
        self.failures[why] = self.failures.get(why, 0) + 1

    @property
    def sent(self) -> int:
        return self.answered + self.refused + self.failed

    @property
    def answered_share(self) -> float:
        return self.answered / max(1, self.sent)

    @property
    def in_time_share(self) -> float:
        return self.in_time / max(1, self.answered)

    @property
    def accuracy(self) -> float:
        return sum(self.accuracies) / max(1, len(self.accuracies))

    @property
    def p99_ms(self) -> float:
        ordered = sorted(self.seconds)
        return 1000 * ordered[math.ceil(0.99 * len(ordered)) - 1] if ordered else 0.0


def together(verdicts: list[Verdict]) -> Verdict:
    """Several as one."""
    whole = Verdict()
    for one in verdicts:
        whole.answered += one.answered
        whole.in_time += one.in_time
        whole.refused += one.refused
        whole.failed += one.failed
        whole.accuracies += one.accuracies
        whole.seconds += one.seconds
    return whole


class PoliteClient:
    """Sends in a thread until it is stopped; every connection is its own, as clients' are."""

    def __init__(self, port: int) -> None:
        self.verdict = Verdict()
        self._port = port
        self._image = photo()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._pace = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> PoliteClient:
        self._pace.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pace.join()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            thread = threading.Thread(target=self._ask, daemon=True)
            thread.start()
            self._threads.append(thread)
            due += PERIOD_S
            self._stop.wait(max(0.0, due - time.monotonic()))

    def _ask(self) -> None:
        begun = time.perf_counter()
        verdict = self.verdict
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("POST", f"/classify?budget_ms={BUDGET_MS:g}", self._image)
            response = connection.getresponse()
            body = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            verdict.fail(repr(error)[:80])
            return
        finally:
            connection.close()
        if response.status == 429:
            verdict.refused += 1
        elif response.status != 200:
            verdict.fail(str(response.status))
        else:
            verdict.answered += 1
            verdict.seconds.append(time.perf_counter() - begun)
            verdict.in_time += body["budget"]["met"]
            verdict.accuracies.append(body["expected_accuracy"] or 0.0)


def main() -> None:
    """Ask for so many seconds, then print what was seen."""
    with PoliteClient(int(sys.argv[1])) as client:
        time.sleep(float(sys.argv[2]))
    print(json.dumps(asdict(client.verdict)))


if __name__ == "__main__":
    main()
