"""`san quantize`: what int8 needs to know about a bundle, from images without labels."""

import argparse
import datetime
import shlex
import sys
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from san_core import bundle as bundles
from san_core.main_network.folding import FoldedArchitecture
from san_core.main_network.quantization import PREFIX, quantisable, to_extras
from training.commands.options import add_limit, add_machine, add_target, target_of
from training.data.folder import index_unlabelled
from training.errors import RecipeError
from training.evaluation.calibrate import images_at
from training.evaluation.quantize import calibrate_ranges, sensitivities
from training.export import stored_type
from training.runtime.distributed import choose_device

HELP = """Add int8 to a bundle, so that the service may use it where it is faster.

Any images will do; they need no labels. `san prepare` also measures the accuracy."""

EXAMPLES = """examples:
  san quantize mine.safetensors --images photos/ -o int8.safetensors"""

_SENSITIVITY_IMAGES = 8
"""Each layer is rounded by itself, a pass over them for every layer: few, to take minutes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the bundle to start from")
    parser.add_argument("--images", type=Path, required=True, metavar="DIR", help="any images")
    add_target(parser)
    add_limit(parser, 256)
    parser.add_argument(
        "--noise",
        type=float,
        default=0.005,
        metavar="SHARE",
        help="leave a layer in float if rounding it alone changes the logits by more than this "
        "share of their power (default: %(default)s)",
    )
    parser.add_argument(
        "--keep-float", default="", metavar="LAYER,LAYER", help="leave these layers in float too"
    )
    add_machine(parser)


def _kept(text: str, known: set[str]) -> set[str]:
    kept = {part.strip() for part in text.split(",") if part.strip()}
    for name in sorted(kept - known):
        raise RecipeError(f"--keep-float {name}: the network has no such layer.")
    return kept


def _bar(total: int, unit: str) -> "tqdm[Any]":
    """A bar on a terminal; nothing elsewhere."""
    return tqdm(total=total, unit=unit, leave=False, disable=None, dynamic_ncols=True)


def _show(bar: "tqdm[Any]", done: int) -> None:
    bar.update(done - bar.n)


def run(args: argparse.Namespace) -> int:
    """Calibrate every trained resolution, find the sensitive layers, write the bundle."""
    device = choose_device(args.device)
    loaded = bundles.load(args.bundle, device)
    network = loaded.network
    folded = FoldedArchitecture(network.skeleton)
    kept = _kept(args.keep_float, set(quantisable(folded.module)))
    folder = index_unlabelled(args.images).limited(args.limit)
    preprocessing = loaded.manifest.preprocessing
    ranges = {}
    for resolution in network.resolutions:
        print(f"Calibrating {resolution} on {len(folder)} images …", file=sys.stderr)
        images = images_at(folder, resolution, preprocessing, device, workers=args.workers)
        with _bar(len(folder), "img") as bar:
            ranges[resolution] = calibrate_ranges(
                network, folded, resolution, images, lambda done: _show(bar, done)
            )
    largest = network.resolutions[0]
    few = folder.limited(_SENSITIVITY_IMAGES)
    print(f"Measuring each layer's rounding at {largest} …", file=sys.stderr)
    batch = torch.cat(list(images_at(few, largest, preprocessing, device, workers=0)))
    layers = ranges[largest]
    with _bar(len(layers), "layer") as bar:
        shares = sensitivities(
            network, folded, largest, batch, layers, lambda _: _show(bar, bar.n + 1)
        )
    sensitive = {layer for layer, share in shares.items() if share > args.noise}
    for layer in sorted(sensitive | kept, key=lambda name: -shares[name]):
        print(f"{layer} stays in float: int8 would add {shares[layer]:.1%} noise to the logits.")
    extras = {n: t for n, t in loaded.extras.items() if not n.startswith(f"{PREFIX}.")}
    for resolution, found in ranges.items():
        chosen = {n: r for n, r in found.items() if n not in sensitive | kept}
        extras |= to_extras(resolution, chosen)
    # What was measured in int8 before does not hold for the new ranges.
    accuracy = tuple(a for a in loaded.manifest.accuracy if a.precision != "int8")
    provenance = loaded.manifest.provenance | {
        "quantization": {
            "command": shlex.join(["san", *sys.argv[1:]]),
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "images": len(folder),
            "float_layers": sorted(sensitive | kept),
        }
    }
    manifest = loaded.manifest.model_copy(update={"accuracy": accuracy, "provenance": provenance})
    target = target_of(args)
    bundles.save(target, network.cpu(), manifest, dtype=stored_type(args.bundle), extras=extras)
    count = len(shares) - len(sensitive | kept)
    print(f"Wrote {target}: {count} of {len(shares)} layers in int8.")
    if not getattr(args, "part_of_more", False):
        print(f"Measure it: san evaluate {target} --data DIR --precisions float,int8 --in-place")
    return 0
