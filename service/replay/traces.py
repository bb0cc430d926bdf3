"""Arrivals: drawn from a scenario, or read from a recording."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

UNIT_PER_S = 201.0
"""What 1x means: the capacity of a fixed 224 px FastAPI server on two cores (`benchmarks.tournament
--real`)."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace; never its pixels."""

    at_ms: float
    budget_ms: float | None = 50.0
    bytes: int = 60_000
    width: int = 500
    height: int = 375
    client: str = ""
    images: int = 1


Draw = Callable[[random.Random], float]


def gamma(rate_per_s: float, seconds: float, cv2: float, seed: int) -> list[float]:
    """Arrival times in ms whose gaps have a squared coefficient of variation of `cv2`."""
    chance = random.Random(seed)
    n = max(1, round(rate_per_s * seconds))
    gaps = [chance.gammavariate(1.0 / cv2, 1.0) for _ in range(n + 1)]
    total, at = sum(gaps), 0.0
    times: list[float] = []
    for gap in gaps[:-1]:
        at += gap
        times.append(1000.0 * seconds * at / total)
    return times


def varying(rate: Callable[[float], float], most: float, seconds: float, seed: int) -> list[float]:
    """Poisson arrivals whose rate per second changes over time (thinning)."""
    chance = random.Random(seed)
    at = 0.0
    times: list[float] = []
    while True:
        at += chance.expovariate(most)
        if at >= seconds:
            return times
        if chance.random() * most < rate(at):
            times.append(1000.0 * at)


def ramp(seconds: float, seed: int) -> list[float]:
    """From 0.2x to 3x and back."""

    def rate(at: float) -> float:
        return UNIT_PER_S * (0.2 + 2.8 * (1 - abs(2 * at / seconds - 1)))

    return varying(rate, 3 * UNIT_PER_S, seconds, seed)


def on_off(seconds: float, seed: int) -> list[float]:
    """Half a second at 4x after every second at 0.3x."""

    def rate(at: float) -> float:
        return UNIT_PER_S * (4.0 if at % 1.5 >= 1.0 else 0.3)

    return varying(rate, 4 * UNIT_PER_S, seconds, seed)


MIXED = (5.0, 10.0, 20.0, 50.0, 100.0)
_SIZES = ((320, 240), (500, 375), (500, 375), (1024, 768), (2048, 1536), (4000, 3000))


def scenario(name: str, seconds: float = 8.0, seed: int = 1) -> list[Arrival]:
    """Draw a named trace: `kind-load`, one of `SCENARIOS` or of the same form.

    `gamma4` and `mixed4` have gaps with a squared coefficient of variation of 4.
    """
    kind, _, load = name.partition("-")
    chance = random.Random(1000 + seed)
    rate = UNIT_PER_S * float(load) if load.replace(".", "").isdigit() else 0.0
    if kind == "poisson":
        return [Arrival(at) for at in gamma(rate, seconds, 1.0, seed)]
    if kind.startswith("gamma"):
        return [Arrival(at) for at in gamma(rate, seconds, float(kind[5:]), seed)]
    if kind == "ramp":
        return [Arrival(at) for at in ramp(seconds, seed)]
    if name == "on-off":
        return [Arrival(at) for at in on_off(seconds, seed)]
    if kind.startswith("mixed"):
        times = gamma(rate, seconds, float(kind[5:] or 1), seed)
        return [Arrival(at, budget_ms=chance.choice(MIXED)) for at in times]
    if kind == "sizes":
        found = []
        for at in gamma(rate, seconds, 1.0, seed):
            width, height = chance.choice(_SIZES)
            size = round(0.15 * width * height)
            found.append(Arrival(at, 100.0, size, width, height))
        return found
    if kind == "greedy":
        polite = [Arrival(at, client="polite") for at in gamma(0.2 * UNIT_PER_S, seconds, 1, seed)]
        greedy = gamma(rate, seconds, 1.0, seed + 1)
        return sorted(
            [*polite, *(Arrival(at, client="greedy") for at in greedy)], key=lambda a: a.at_ms
        )
    raise ValueError(f"There is no scenario {name!r}; known are {', '.join(SCENARIOS)}.")


SCENARIOS = (
    *(f"poisson-{load}" for load in ("0.25", "0.5", "1", "1.5", "2", "4")),
    *(f"gamma{cv}-{load}" for cv in (2, 4, 8) for load in ("0.5", "1", "2", "4")),
    "ramp",
    "on-off",
    *(f"mixed-{load}" for load in ("0.5", "1", "2")),
    *(f"sizes-{load}" for load in ("0.25", "0.5", "1")),
)


def read(path: Path) -> list[Arrival]:
    """A recording of `san serve --record`."""
    return list(_lines(path))


def _lines(path: Path) -> Iterator[Arrival]:
    with path.open() as file:
        for line in file:
            facts = json.loads(line)
            yield Arrival(**{k: facts[k] for k in Arrival.__slots__ if k in facts})


def faster(trace: list[Arrival], factor: float) -> list[Arrival]:
    """The same arrivals in less time: `factor` times the traffic."""
    return [replace(arrival, at_ms=arrival.at_ms / factor) for arrival in trace]
