"""`san temper`: a temperature for every trained resolution, from images without labels."""

import argparse
import sys
from pathlib import Path

from torch import Tensor

from san_core import bundle as bundles
from san_core.bundle import Bundle
from training.commands.options import at_least
from training.data.folder import ImageFolder, index_unlabelled
from training.distributed import choose_device
from training.errors import RecipeError
from training.evaluation.calibrate import images_at
from training.evaluation.confidence import confidence, logits_of, temperature_for
from training.export import stored_type

HELP = "Make a bundle's scores mean what they say: a temperature per resolution, without labels."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument(
        "--judge",
        type=Path,
        required=True,
        metavar="BUNDLE",
        help="a bundle with the same classes that was trained on its own, the better the better: "
        "how often both say the same stands for how often the network is right",
    )
    parser.add_argument(
        "--images",
        type=Path,
        required=True,
        metavar="DIR",
        help="images like those that will be classified, none that either was trained on",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="BUNDLE", help="write here instead of in place"
    )
    parser.add_argument("--limit", type=at_least(0), default=1000, help="images to use; 0 is all")
    parser.add_argument("--workers", type=at_least(-1), default=-1)
    parser.add_argument("--device", default="cpu")


def _logits(
    bundle: Bundle, resolution: int, folder: ImageFolder, args: argparse.Namespace
) -> Tensor:
    device = choose_device(args.device)
    images = images_at(
        folder, resolution, bundle.manifest.preprocessing, device, workers=args.workers
    )
    return logits_of(bundle.network, resolution, images)


def run(args: argparse.Namespace) -> int:
    """Compare with the judge at every trained resolution and write the temperatures."""
    device = choose_device(args.device)
    loaded, judge = bundles.load(args.bundle, device), bundles.load(args.judge, device)
    if loaded.manifest.classes != judge.manifest.classes:
        raise RecipeError("The judge has other classes than the bundle.")
    folder = index_unlabelled(args.images).limited(args.limit)
    network = loaded.network
    network.temperatures = ()
    verdicts = _logits(judge, judge.network.resolutions[0], folder, args).argmax(1)
    found = []
    print("resolution   agrees with the judge   mean score   temperature")
    for resolution in sorted(network.resolutions):
        logits = _logits(loaded, resolution, folder, args)
        rate = float((logits.argmax(1) == verdicts).double().mean())
        temperature = round(temperature_for(logits, rate), 4)
        found.append((resolution, temperature))
        print(f"{resolution:>10} {rate:>23.1%} {confidence(logits, 1.0):>12.3f} {temperature:>13}")
    network.temperatures = tuple(found)
    told = {"judge": judge.manifest.name, "images": len(verdicts)}
    provenance = loaded.manifest.provenance | {"temperatures": told}
    manifest = loaded.manifest.model_copy(update={"provenance": provenance})
    target = args.output or args.bundle
    kept = stored_type(args.bundle)
    bundles.save(target, network.cpu(), manifest, dtype=kept, extras=loaded.extras)
    print(f"Wrote {target}.", file=sys.stderr)
    return 0
