"""A smoke test for a host with a GPU: the CUDA engine against the CPU, and how fast it is.

    python -m benchmarks.gpu [--quick] [--bundle FILE] [--device cuda:0] [--max-batch 8]

For every trained resolution: logits of several batch sizes against those of the CPU, then the
median time of one image and of a full batch. At last the same answers again while other networks
are built and dropped beside, as in service. Exits with 1 if any of it is wrong.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from benchmarks.networks import chosen
from benchmarks.options import parser
from benchmarks.results import table
from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from service.engines.base import Engine, RunnableNetwork
from service.engines.torch_engine import TorchEngine
from service.errors import EngineUnavailableError
from service.runtime.cores import available_cores

TOLERANCE = 0.02
"""Largest difference of a logit, over the largest logit: half precision has 11 bits, but layers
add up."""


@dataclass(frozen=True)
class Comparison:
    """What one batch showed."""

    resolution: int
    batch: int
    error: float
    same_top1: bool
    """For every image whose best two logits differ by more than the error allows for."""

    @property
    def right(self) -> bool:
        """Whether both engines say the same."""
        return self.error <= TOLERANCE and self.same_top1


def images(n: int, side: int) -> NDArray[np.float32]:
    """Normal noise, the same every time."""
    return np.random.default_rng(n * side).standard_normal((n, side, side, 3), np.float32)


def _sizes(max_batch: int) -> list[int]:
    """Some that were captured and one, if there is one, that must be padded."""
    return sorted({1, min(2, max_batch), min(3, max_batch), max_batch})


def compare(
    network: RunnableNetwork, reference: RunnableNetwork, sizes: Iterable[int]
) -> list[Comparison]:
    """Run both on the same batches."""
    side = network.point.resolution
    found = []
    for n in sizes:
        batch = images(n, side)
        logits, expected = network.run(batch), reference.run(batch)
        scale = float(np.abs(expected).max())
        error = float(np.abs(logits - expected).max()) / scale
        best = np.sort(expected, axis=1)
        clear = best[:, -1] - best[:, -2] > 2 * TOLERANCE * scale
        same = (logits.argmax(1) == expected.argmax(1)) | ~clear
        found.append(Comparison(side, n, error, bool(same.all())))
    return found


def p50(network: RunnableNetwork, n: int, seconds: float) -> float:
    """The median time of a batch, copies included, in ms."""
    batch = images(n, network.point.resolution)
    times: list[float] = []
    network.run(batch)
    begun = perf_counter()
    while perf_counter() - begun < seconds or len(times) < 5:
        started = perf_counter()
        network.run(batch)
        times.append((perf_counter() - started) * 1000)
    return median(times)


def steady(engine: Engine, points: list[OperatingPoint], max_batch: int, rounds: int) -> int:
    """How many answers change while other networks are built and dropped; should be none.

    More than rounding, that is: some kernels add up in whatever order their threads arrive.
    """
    network = engine.build(points[0])
    batch = images(min(3, max_batch), points[0].resolution)
    expected, done = network.run(batch), threading.Event()
    allowed = 1e-3 * float(np.abs(expected).max())

    def build() -> None:
        try:
            for _ in range(rounds):
                for point in points[1:] or points:
                    engine.build(point)
        finally:
            done.set()

    builder = threading.Thread(target=build)
    builder.start()
    changed = 0
    while not done.is_set():
        changed += not np.abs(network.run(batch) - expected).max() <= allowed
    builder.join()
    return changed


def check(
    engine: Engine, reference: Engine, points: list[OperatingPoint], max_batch: int, seconds: float
) -> bool:
    """Compare, time and print; returns whether all is right."""
    compared, rows = [], []
    for point in points:
        network = engine.build(point)
        found = compare(network, reference.build(point), _sizes(max_batch))
        compared += found
        times = [p50(network, n, seconds) for n in (1, max_batch)]
        rows.append(
            [
                f"{point.resolution} {point.mode}",
                f"{max(c.error for c in found):.1e}",
                "yes" if all(c.right for c in found) else "NO",
                *(f"{ms:.3f}" for ms in times),
            ]
        )
    print(table(["point", "error", "right", "p50 of 1, ms", f"p50 of {max_batch}, ms"], rows))
    changed = steady(engine, points, max_batch, rounds=3)
    print(f"answers that changed while others were built: {changed}")
    for name, fact in engine.describe().items():
        print(f"{name}: {fact}")
    return changed == 0 and all(c.right for c in compared)


def main() -> int:
    """Run it."""
    options = parser(__doc__.split("\n")[0])
    options.add_argument("--device", default="cuda")
    options.add_argument("--max-batch", type=int, default=8)
    args = options.parse_args()
    settings = {"threads": available_cores(), "max_batch": args.max_batch}
    try:
        # Each engine moves the meta network to its device, so each has a bundle of its own.
        engine = TorchEngine(chosen(args.bundle), device=args.device, **settings)
    except EngineUnavailableError as error:
        print(error, file=sys.stderr)
        return 2
    bundle = chosen(args.bundle)
    reference = TorchEngine(bundle, device="cpu", **settings)
    resolutions = bundle.network.resolutions[-1:] if args.quick else bundle.network.resolutions
    points = [OperatingPoint(r, Mode.PROXY) for r in resolutions]
    points.append(OperatingPoint(resolutions[0] - 16, Mode.DATA_FREE))
    right = check(engine, reference, points, args.max_batch, 0.1 if args.quick else 1.0)
    print("all right" if right else "NOT right")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
