"""A trial for a host with a GPU: is the CUDA engine right, does it survive, how fast is it.

    python -m benchmarks.gpu [--quick] [--bundle FILE] [--device cuda:0] [--max-batch 64]

For every trained resolution: logits of several batch sizes against those of the CPU, then the
median time of one image and of a full batch. Then what service brings: the same answers while other
networks are built and dropped beside, reloads that give their memory back, memory that runs out on
purpose and comes back, and several clients over HTTP with evictions and a reload. Prints a verdict
per step; exits with 1 if any of it is wrong, with 2 if there is no GPU.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from benchmarks.driving.photo import photo
from benchmarks.driving.wire import Client, get, post
from benchmarks.reporting.options import parser
from benchmarks.reporting.results import table
from benchmarks.servers.bundles import new_version
from benchmarks.servers.networks import chosen
from benchmarks.servers.our_service import START_SECONDS, OurService, classify
from san_core.bundle import DEFAULT_BUNDLE
from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from service.engines.base import Engine, RunnableNetwork
from service.engines.cuda.engine import CudaEngine
from service.engines.cuda.self_test import TOLERANCE
from service.engines.torch_engine import TorchEngine
from service.errors import EngineFullError, EngineUnavailableError
from service.runtime.cores import available_cores

_GROWTH = 1.2
"""How much more memory the last of several reloads may hold than the second."""
_CLIENTS = 4
"""Enough for batches while networks are built and evicted."""


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


def images(n: int, side: int) -> NDArray[np.uint8]:
    """Noise, and pieces of a photograph in every second place; the same every time."""
    random = np.random.default_rng(n * side)
    found = random.integers(0, 256, (n, side, side, 3), np.uint8)
    with Image.open(io.BytesIO(photo())) as whole:
        for place in range(1, n, 2):
            left, top = random.integers(0, whole.width // 2), random.integers(0, whole.height // 2)
            box = (left, top, left + whole.height // 2, top + whole.height // 2)
            found[place] = whole.resize((side, side), Image.Resampling.BILINEAR, box)
    return found


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
    expected = network.run(batch)
    allowed = 1e-3 * float(np.abs(expected).max())

    def build() -> None:
        for _ in range(rounds):
            for point in points[1:] or points:
                engine.build(point).finish()

    changed = 0
    with ThreadPoolExecutor(1) as builder:
        building, is_over = builder.submit(build), False
        while not is_over:
            is_over = building.done()  # one run more, after all was built
            changed += not np.abs(network.run(batch) - expected).max() <= allowed
    building.result()  # a build that failed would prove nothing
    return changed


def check(
    engine: Engine, reference: Engine, points: list[OperatingPoint], max_batch: int, seconds: float
) -> bool:
    """Compare, time and print; returns whether all is right."""
    compared, rows = [], []
    for point in points:
        network = engine.build(point)
        network.finish()
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


def reloads(make: Callable[[], CudaEngine], point: OperatingPoint, times: int = 5) -> list[int]:
    """Reserved memory after each of several engines that follow one another."""
    held = []
    for _ in range(times):
        engine = make()
        network = engine.build(point)
        network.finish()
        network.run(images(1, point.resolution))
        held.append(int(engine.metrics()["memory_reserved_bytes"]))
        del network
        engine.close()
    return held


def runs_out(
    make: Callable[[], CudaEngine], point: OperatingPoint, limit: Callable[[float], None]
) -> bool:
    """Whether an engine that may use nearly nothing says so, and serves again once it may."""
    engine = make()
    limit(0.0001)
    try:
        engine.build(point)
        refused = False
    except EngineFullError:
        refused = True
    finally:
        limit(1.0)
    served = np.isfinite(engine.build(point).run(images(1, point.resolution))).all()
    engine.close()
    return refused and bool(served)


@dataclass
class OverHttp:
    """What clients of a service saw."""

    device: str = ""
    statuses: Counter[int] = field(default_factory=Counter)
    classes: dict[int, set[int]] = field(default_factory=dict)
    """What the photograph was taken for, by resolution."""
    evictions: float = 0.0

    @property
    def right(self) -> bool:
        """Whether all was answered, always the same, though networks came and went."""
        same = all(len(found) == 1 for found in self.classes.values())
        return set(self.statuses) == {200} and same and self.evictions > 0


def over_http(bundle: Path | None, device: str, requests: int) -> OverHttp:
    """Ask for every point of the frontier in turn, from several clients; reload half way."""
    body = photo()
    found = OverHttp()
    # Room for few networks: others are evicted all the time.
    options = ["--device", device, "--max-networks", "2"]
    with (
        tempfile.TemporaryDirectory() as folder,
        OurService(Path(shutil.copy(bundle or DEFAULT_BUNDLE, folder)), options) as service,
    ):
        assert service.bundle is not None
        service.await_answer("/readyz", START_SECONDS)

        def ask(first: int) -> None:
            with Client(service.port) as client:
                for number in range(first, requests, _CLIENTS):
                    # Times that are taken meanwhile move the frontier, and whoever pins many points
                    # off it is refused.
                    points = [point for point in service.points() if point.frontier]
                    point = points[number % len(points)]
                    pin = {"resolution": point.resolution, "mode": point.mode}
                    answer = client.send(classify(body, **pin))
                    found.statuses[answer.status] += 1
                    if answer.status == HTTPStatus.OK:
                        best = answer.json()["predictions"][0]["index"]
                        found.classes.setdefault(point.resolution, set()).add(best)
                    if number == requests // 2:
                        new_version(service.bundle, "reloaded")
                        reloaded = client.send(post("/admin/reload", b""))
                        found.statuses[reloaded.status] += 1

        with ThreadPoolExecutor(_CLIENTS) as clients:
            list(clients.map(ask, range(_CLIENTS)))
        found.device = service.ask("/version")["device"]
        with Client(service.port) as client:
            page = client.send(get("/metrics")).body.decode()
        [evicted] = re.findall(r"^san_weight_cache_evictions_total (\S+)", page, re.MULTILINE)
        found.evictions = float(evicted)
    return found


def main() -> int:
    """Run it."""
    options = parser(__doc__.split("\n")[0])
    options.add_argument("--device", default="cuda")
    options.add_argument("--max-batch", type=int, default=64)
    args = options.parse_args()
    settings = {"threads": available_cores(), "max_batch": args.max_batch}

    def make() -> CudaEngine:
        # Each engine moves the meta network to its device, so each has a bundle of its own.
        return CudaEngine(chosen(args.bundle), device=args.device, **settings)

    try:
        engine = make()
    except EngineUnavailableError as error:
        print(f"{error}\nNothing was tried: this needs a GPU.", file=sys.stderr)
        return 2
    bundle = chosen(args.bundle)
    reference = TorchEngine(bundle, device="cpu", **settings)
    resolutions = bundle.network.resolutions[-1:] if args.quick else bundle.network.resolutions
    points = [OperatingPoint(r, Mode.PROXY) for r in resolutions]
    points.append(OperatingPoint(resolutions[0] - 16, Mode.DATA_FREE))
    verdicts = {
        "answers": check(engine, reference, points, args.max_batch, 0.1 if args.quick else 1.0)
    }
    device = engine.device
    engine.close()
    del engine
    held = reloads(make, points[0])
    print("reserved after each reload, MB:", ", ".join(f"{b / 1e6:.0f}" for b in held))
    verdicts["reloads"] = held[-1] <= _GROWTH * held[1]
    verdicts["out of memory"] = runs_out(
        make,
        points[0],
        lambda share: torch.cuda.set_per_process_memory_fraction(share, device),
    )
    seen = over_http(args.bundle, args.device, 40 if args.quick else 400)
    print(f"over HTTP on {seen.device}: {dict(seen.statuses)}, {seen.evictions:.0f} evictions")
    verdicts["HTTP, evictions, reload"] = seen.right and seen.device.startswith("cuda")
    for step, right in verdicts.items():
        print(f"{step}: {'right' if right else 'NOT right'}")
    return 0 if all(verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
