"""The progress bar: rate, time left, loss parts, accuracy per resolution."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

_WIDTH = 20
_LINE_EVERY = 30.0


def clock_time(seconds: float) -> str:
    """Write a duration as 1:02:03 or 2:03."""
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@dataclass(frozen=True)
class Snapshot:
    """The facts that a progress line shows."""

    epoch: int
    epochs: int
    step: int
    steps: int
    """Of the whole run."""
    images_per_second: float
    seconds_left: float
    loss: float
    cross_entropy: float
    distillation: float
    wait_share: float
    accuracy: dict[int, float] = field(default_factory=dict)
    """By resolution, of the training crops."""


def line(now: Snapshot) -> str:
    """Write the facts as one line."""
    done = now.step / max(1, now.steps)
    bar = ("#" * int(done * _WIDTH)).ljust(_WIDTH, ".")
    accuracy = " ".join(f"{side}:{value:.0%}" for side, value in now.accuracy.items())
    return (
        f"[{bar}] {done:4.0%} epoch {now.epoch + 1}/{now.epochs} "
        f"{now.images_per_second:.1f} img/s, {clock_time(now.seconds_left)} left | "
        f"loss {now.loss:.3f} (CE {now.cross_entropy:.3f}, KL {now.distillation:.3f}) | "
        f"{accuracy + ' | ' if accuracy else ''}data wait {now.wait_share:.0%}"
    )


class ProgressBar:
    """Shows snapshots: in place on a terminal, else a line every half minute."""

    def __init__(
        self,
        stream: TextIO | None,
        clock: Callable[[], float] = time.monotonic,
        width: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._width = width
        self._last = float("-inf")
        self._open = False

    def show(self, now: Snapshot) -> None:
        """Show a snapshot."""
        if self._stream is None:
            return
        if self._stream.isatty():
            # A line that wraps cannot be drawn over: every update would leave a part of it.
            self._stream.write("\r\x1b[2K" + line(now)[: self._width() - 1])
            self._open = True
        elif self._clock() - self._last >= _LINE_EVERY or now.step == now.steps:
            self._stream.write(line(now) + "\n")
            self._last = self._clock()
        self._stream.flush()

    def say(self, text: str) -> None:
        """Write a line that stays, e.g. an epoch's accuracy."""
        if self._stream is None:
            return
        self._stream.write(("\n" if self._open else "") + text + "\n")
        self._stream.flush()
        self._open = False
