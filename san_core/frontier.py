"""Operating points, and those of them that no other beats."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from san_core.mode import Mode

Precision = Literal["float", "int8"]
T = TypeVar("T")


@dataclass(frozen=True, order=True)
class OperatingPoint:
    """A way to run the network: at which resolution, in which mode, in which precision."""

    resolution: int
    mode: Mode = Mode.PROXY
    precision: Precision = "float"


def frontier(
    points: Iterable[T], latency_and_accuracy: Callable[[T], tuple[float, float]]
) -> list[T]:
    """Return the points that no other beats on both latency and accuracy, fastest first."""
    measured = [(*latency_and_accuracy(point), point) for point in points]
    measured.sort(key=lambda entry: (entry[0], -entry[1]))
    kept: list[T] = []
    best = float("-inf")
    for _, accuracy, point in measured:
        if accuracy > best:
            kept.append(point)
            best = accuracy
    return kept
