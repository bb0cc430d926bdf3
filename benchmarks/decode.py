"""From JPEG bytes to the network's input: the reference, Pillow at reduced scale, the fast path.

    python -m benchmarks.decode [--quick] [--bundle FILE] [--data DIR]

One thread. With `--data` (as for `san evaluate`) also the top-1 of each, by the float
engine, and of the service itself, asked over HTTP image by image: both must give what the
reference gives, which is how `san evaluate` decodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.driving.photo import photo
from benchmarks.driving.turns import Call, in_turns
from benchmarks.driving.wire import Client
from benchmarks.reporting.options import parser, report
from benchmarks.reporting.plotting import OURS, PEERS, axes, save
from benchmarks.reporting.results import Check, Report, ratio, summarise, table
from benchmarks.servers.networks import chosen
from benchmarks.servers.our_service import OurService, classify
from san_core.bundle import Bundle
from san_core.frontier import OperatingPoint
from san_core.preprocessing import Preprocessing, decode
from service.engines.openvino.engine import OpenVinoEngine
from service.images import jpeg
from training.data.folder import index_for_classes, validation_root

REFERENCE, REDUCED, FAST = "reference", "Pillow at reduced scale", "fast path"
SERVED = "over HTTP"
SIDES = (256, 500, 1280, 4000)
_POINTS = 0.3
"""How many points of top-1 the fast path and the service may differ by."""
_QUICK_IMAGES = 20

Way = Callable[[bytes, Preprocessing, int], NDArray[np.uint8]]


def _reference(data: bytes, how: Preprocessing, resolution: int) -> NDArray[np.uint8]:
    return how.to_pixels(decode(data), resolution)


def _reduced(data: bytes, how: Preprocessing, resolution: int) -> NDArray[np.uint8]:
    image = decode(data, at_least=how.least_side(resolution))
    return how.to_pixels(image, resolution)


def _fast(data: bytes, how: Preprocessing, resolution: int) -> NDArray[np.uint8]:
    pixels = jpeg.to_pixels(data, how, resolution)
    return _reduced(data, how, resolution) if pixels is None else pixels


WAYS: dict[str, Way] = {REFERENCE: _reference, REDUCED: _reduced, FAST: _fast}


def time_them(made: Report, how: Preprocessing, resolutions: list[int], quick: bool) -> None:
    """All ways, sizes and resolutions."""
    made.data["sizes"] = []
    for side in SIDES[1:2] if quick else SIDES:
        data = photo(side)
        for resolution in resolutions:
            calls: dict[str, Call] = {
                name: partial(way, data, how, resolution) for name, way in WAYS.items()
            }
            found = in_turns(calls, rounds=2 if quick else 9, seconds=0.1 if quick else 0.25)
            made.data["sizes"].append(
                {
                    "side": side,
                    "kilobytes": len(data) / 1e3,
                    "resolution": resolution,
                    "ms": {name: asdict(summarise(found[name])) for name in WAYS},
                    "faster": ratio(found[REDUCED], found[FAST]),
                }
            )


def _answered(client: Client, data: bytes, resolution: int) -> int:
    """The service's best class by the network that the others run: pinned, proxy, in float."""
    told = json.loads(client.send(classify(data, resolution=resolution, mode="proxy")).body)
    assert [told[key] for key in ("resolution", "mode", "precision")] == [
        resolution, "proxy", "float",
    ], told  # fmt: skip
    return int(told["predictions"][0]["index"])


def top1(
    bundle: Bundle, client: Client, root: Path, resolutions: list[int], quick: bool
) -> list[dict[str, Any]]:
    """How often each way's best class is the folder's, and the reference's."""
    folder = index_for_classes(validation_root(root), bundle.manifest.classes)
    folder = folder.limited(_QUICK_IMAGES if quick else 0)
    files = [folder.path(index) for index in range(len(folder))]
    labels = np.array(folder.labels)
    engine = OpenVinoEngine(bundle, threads=1, max_batch=1)
    how, found = bundle.manifest.preprocessing, []
    for resolution in resolutions:
        network = engine.build(OperatingPoint(resolution))
        said: dict[str, list[int]] = {name: [] for name in (*WAYS, SERVED)}
        for file in files:
            data = file.read_bytes()
            for name, way in WAYS.items():
                said[name].append(int(network.run(way(data, how, resolution)[None]).argmax()))
            said[SERVED].append(_answered(client, data, resolution))
        best = {name: np.array(values) for name, values in said.items()}
        found.append(
            {
                "resolution": resolution,
                "n": len(files),
                "top1": {name: float((best[name] == labels).mean()) for name in said},
                "agrees": {n: float((best[n] == best[REFERENCE]).mean()) for n in said},
            }
        )
        print(found[-1], flush=True)
    return found


def tell(made: Report) -> None:
    """The tables and the claims."""
    rows = [
        [
            f"{fact['side']} px ({fact['kilobytes']:.0f} KB) to {fact['resolution']}",
            *(f"{fact['ms'][name]['p50']:.2f}" for name in WAYS),
            "{:.2f}x ({:.2f} to {:.2f})".format(*fact["faster"]),
        ]
        for fact in made.data["sizes"]
    ]
    made.say("Medians in ms; *faster* is Pillow at reduced scale over the fast path.")
    made.say(table(["photo", *WAYS, "faster (rounds)"], rows))
    for fact in made.data.get("top1", []):
        if fact is made.data["top1"][0]:
            made.say(f"Top-1 on {fact['n']} images, and agreement with the reference:")
        each = ", ".join(
            f"{n} {fact['top1'][n]:.4f} ({fact['agrees'][n]:.4f})" for n in fact["top1"]
        )
        made.say(f"{fact['resolution']}: {each}")
        for name in (FAST, SERVED):
            apart = 100 * abs(fact["top1"][name] - fact["top1"][REFERENCE])
            claim = f"top-1 {name} apart from the reference at {fact['resolution']}"
            made.check(Check(claim, apart, "<=", _POINTS, " points"))


def draw(made: Report, path: Path) -> None:
    """Bars by size, at the largest resolution."""
    figure, (plot,) = axes(width=6.0)
    largest = max(fact["resolution"] for fact in made.data["sizes"])
    facts = [fact for fact in made.data["sizes"] if fact["resolution"] == largest]
    for offset, (name, colour) in enumerate(zip(WAYS, (PEERS[0], PEERS[2], OURS), strict=True)):
        at = [x + 0.27 * (offset - 1) for x in range(len(facts))]
        plot.bar(at, [f["ms"][name]["p50"] for f in facts], 0.25, color=colour, label=name)
    plot.set_xticks(range(len(facts)), [f"{f['side']} px" for f in facts])
    plot.set(ylabel=f"p50 to {largest} px, ms", yscale="log")
    plot.legend(frameon=False)
    save(figure, path)


def main() -> None:
    """Run it."""
    options = parser(__doc__.split("\n")[0])
    options.add_argument("--data", type=Path, help="labelled images, for the top-1 of each way")
    args = options.parse_args()
    made = report("decode", "Decode", args)
    torch.set_num_threads(1)
    bundle = chosen(args.bundle)
    resolutions = [224] if args.quick else [224, 160, 96]
    judged = resolutions if args.quick else [*resolutions, 80, 64]
    time_them(made, bundle.manifest.preprocessing, resolutions, args.quick)
    if args.data is not None:
        with OurService(args.bundle) as service, Client(service.await_ready().port) as client:
            made.data["top1"] = top1(bundle, client, args.data, judged, args.quick)
    tell(made)
    made.write(lambda path: draw(made, path))


if __name__ == "__main__":
    main()
