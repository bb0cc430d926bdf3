"""`san temper`: a temperature for every trained resolution, from images without labels."""

import argparse
from pathlib import Path

from torch import Tensor

from san_core import bundle as bundles
from san_core.bundle import Bundle
from training.commands.options import add_limit, add_machine, add_target, resolutions, target_of
from training.data.folder import ImageFolder, index_unlabelled
from training.errors import RecipeError
from training.evaluation.calibrate import images_at
from training.evaluation.confidence import (
    confidence,
    expected_accuracy,
    logits_of,
    temperature_for,
)
from training.export import stored_type
from training.runtime.distributed import choose_device

HELP = (
    """Make a bundle's scores mean what they say: a temperature per image size, without labels."""
)

EXAMPLES = """examples:
  san temper mine.safetensors --judge other.safetensors --images photos/ -o tempered.safetensors"""


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error
    if not 0 < share < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return share


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the bundle to start from")
    parser.add_argument(
        "--judge",
        type=Path,
        required=True,
        metavar="BUNDLE",
        help="an accurate bundle with the same classes, trained independently: how often both "
        "agree stands for how often the network is right",
    )
    parser.add_argument(
        "--judge-accuracy",
        type=_share,
        metavar="SHARE",
        help="published accuracy of the judge on such images, 0 to 1: the judge's scores for the "
        "network's answers then take the place of agreement",
    )
    parser.add_argument(
        "--images",
        type=Path,
        required=True,
        metavar="DIR",
        help="images like those that will be classified; neither bundle was trained on them",
    )
    parser.add_argument(
        "--also",
        type=resolutions,
        default=(),
        metavar="T,T",
        help="resolutions between the trained ones that get a temperature of their own, found in "
        "mode data_free; others are interpolated",
    )
    add_target(parser)
    add_limit(parser, 1000)
    add_machine(parser)


def _logits(
    bundle: Bundle, resolution: int, folder: ImageFolder, args: argparse.Namespace
) -> Tensor:
    device = choose_device(args.device)
    images = images_at(
        folder, resolution, bundle.manifest.preprocessing, device, workers=args.workers
    )
    return logits_of(bundle.network, resolution, images)


def run(args: argparse.Namespace) -> int:
    """Compare with the judge at every resolution and write the temperatures."""
    device = choose_device(args.device)
    loaded, judge = bundles.load(args.bundle, device), bundles.load(args.judge, device)
    if loaded.manifest.classes != judge.manifest.classes:
        raise RecipeError("The judge has other classes than the bundle.")
    folder = index_unlabelled(args.images).limited(args.limit)
    network = loaded.network
    network.temperatures = ()
    verdicts = _logits(judge, judge.network.resolutions[0], folder, args)
    found = []
    print("resolution   agrees with the judge   expected right   mean score   temperature")
    for resolution in sorted({*network.resolutions, *args.also}):
        logits = _logits(loaded, resolution, folder, args)
        answers = logits.argmax(1)
        agreement = expected_accuracy(answers, verdicts, None)
        rate = expected_accuracy(answers, verdicts, args.judge_accuracy)
        temperature = round(temperature_for(logits, rate), 4)
        found.append((resolution, temperature))
        print(
            f"{resolution:>10} {agreement:>23.1%} {rate:>16.1%} {confidence(logits, 1.0):>12.3f} "
            f"{temperature:>13}"
        )
    network.temperatures = tuple(found)
    told = {"judge": judge.manifest.name, "images": len(verdicts)}
    if args.judge_accuracy is not None:
        told["judge_accuracy"] = args.judge_accuracy
    provenance = loaded.manifest.provenance | {"temperatures": told}
    manifest = loaded.manifest.model_copy(update={"provenance": provenance})
    target = target_of(args)
    kept = stored_type(args.bundle)
    bundles.save(target, network.cpu(), manifest, dtype=kept, extras=loaded.extras)
    print(f"Wrote {target}. Serve it: san serve {target}")
    return 0
