"""The progress bar: rate, time left, loss parts, accuracy per resolution."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO

from tqdm import tqdm

_LINE_EVERY = 30.0
_FORMAT = "{desc} {percentage:3.0f}% {bar} {rate_fmt}, {remaining} left{postfix}"
_LEAST = 52
"""Columns of a bar without its numbers: description, a short bar, rate, time."""


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


def parts(now: Snapshot) -> list[str]:
    """The numbers of a line, the most important first; rate and time left follow."""
    losses = f"loss {now.loss:.3f}"
    accuracy = " ".join(f"{side}:{value:.0%}" for side, value in now.accuracy.items())
    found = [losses, accuracy]
    if now.cross_entropy and now.distillation:  # else the loss has one part only
        found += [f"CE {now.cross_entropy:.3f}", f"KL {now.distillation:.3f}"]
    return [part for part in (*found, f"data wait {now.wait_share:.0%}") if part]


def line(now: Snapshot) -> str:
    """Write the facts as one line, for a log."""
    done = now.step / max(1, now.steps)
    return (
        f"{done:4.0%} epoch {now.epoch + 1}/{now.epochs} {now.images_per_second:.1f} img/s, "
        f"{clock_time(now.seconds_left)} left, {', '.join(parts(now))}"
    )


def fitting(texts: list[str], width: int) -> str:
    """As many of the texts as fit, in order: none is cut."""
    shown = ""
    for text in texts:
        longer = f"{shown}, {text}" if shown else text
        if len(longer) > width:
            break
        shown = longer
    return shown


class ProgressBar:
    """Shows how far a run is: a bar of tqdm on a terminal, else a line every half minute."""

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
        self._bar: tqdm[Any] | None = None

    def start(self, images: int, of: int) -> None:
        """Show the bar, before anything is done."""
        if self._stream is not None and self._stream.isatty() and self._bar is None:
            self._bar = tqdm(
                total=of,
                initial=images,
                unit="img",
                file=self._stream,
                bar_format=_FORMAT,
                ncols=self._width(),
                leave=True,
            )

    def advance(self, images: int) -> None:
        """Count images that were trained on."""
        if self._bar is not None:
            self._bar.update(images)

    def show(self, now: Snapshot) -> None:
        """Show a snapshot."""
        if self._bar is not None:
            self._bar.ncols = self._width()
            self._bar.set_description_str(f"epoch {now.epoch + 1}/{now.epochs}", refresh=False)
            told = fitting(parts(now), self._width() - _LEAST)
            self._bar.set_postfix_str(told)
        elif self._stream is not None and (
            self._clock() - self._last >= _LINE_EVERY or now.step == now.steps
        ):
            self._stream.write(line(now) + "\n")
            self._stream.flush()
            self._last = self._clock()

    def say(self, text: str) -> None:
        """Write a line that stays, e.g. an epoch's accuracy."""
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        elif self._stream is not None:
            self._stream.write(text + "\n")
            self._stream.flush()

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
