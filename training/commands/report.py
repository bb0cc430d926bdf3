"""`san report`: the small-scale reproduction, and the curves of a run."""

import argparse
import logging
import signal
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import FrameType

from san_core.bundle import read_manifest
from san_core.resolution import MIN_RESOLUTION
from training import curves
from training.config import load_recipe, make_recipe
from training.data.folder import index_training
from training.distributed import Group, choose_device
from training.errors import DataError
from training.reproduction import BUNDLE, evaluate_all, train_all, variants
from training.reproduction_page import ENVELOPE, draw_envelope, page, read_results

HELP = "Reproduce the paper at small scale, or draw a run's curves."


def _sides(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _tests(trained: Sequence[int]) -> tuple[int, ...]:
    """The trained resolutions, those half way between, and one step beyond each end."""
    ordered = sorted(trained)
    above, below = 2 * ordered[-1] - ordered[-2], 2 * ordered[0] - ordered[1]
    middles = [(low + high) // 2 for low, high in pairwise(ordered)]
    sides = {*trained, *middles, above, below}
    return tuple(sorted((side for side in sides if side >= MIN_RESOLUTION), reverse=True))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    kinds = parser.add_subparsers(dest="kind", required=True)
    reproduce = kinds.add_parser("reproduce", help="train, evaluate and report, resumably")
    reproduce.add_argument("--data", type=Path, required=True, metavar="DIR")
    reproduce.add_argument("--output", type=Path, required=True, metavar="DIR")
    reproduce.add_argument("--recipe", default="small-resnet18", metavar="NAME")
    reproduce.add_argument("--resolutions", type=_sides, help="instead of the recipe's")
    reproduce.add_argument(
        "--tests", type=_sides, help="default: the trained ones, those between, one beyond each end"
    )
    reproduce.add_argument("--epochs", type=int, metavar="N", help="instead of the recipe's")
    reproduce.add_argument("--seed", type=int, default=0)
    reproduce.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    reproduce.add_argument("--limit-images", type=int, default=0, metavar="N")
    reproduce.add_argument(
        "--markdown", type=Path, metavar="FILE", help="where the page goes (default: --output)"
    )
    curve = kinds.add_parser("curves", help="draw a run's curves")
    curve.add_argument("run", type=Path)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _reproduce(args: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    index_training(args.data)  # complain about the data before anything starts
    args.resolutions = args.resolutions or make_recipe(load_recipe(args.recipe)).resolutions
    args.tests = args.tests or _tests(args.resolutions)
    sides = ",".join(map(str, args.resolutions))
    options = ["--recipe", args.recipe, "--resolutions", sides, "--seed", str(args.seed)]
    if args.epochs:
        options += ["--epochs", str(args.epochs)]
    if args.limit_images:
        options += ["--limit-images", str(args.limit_images)]
    wanted = variants(args.resolutions)
    signal.signal(signal.SIGTERM, _interrupt)  # so that the runs are asked to save, too
    failed = train_all(args.data, args.output, wanted, options, jobs=args.jobs)
    if failed:
        names = ", ".join(variant.name for variant in failed)
        raise DataError(f"These runs failed: {names}. See train.log in {args.output}/NAME.")
    alone = Group(0, 1, choose_device("auto"))
    evaluate_all(args.data, args.output, wanted, args.tests, alone)
    _write_page(args)
    return 0


def _write_page(args: argparse.Namespace) -> None:
    results = read_results(args.output, args.resolutions, args.tests)
    manifest = read_manifest(args.output / "san" / BUNDLE)
    recipe = make_recipe(manifest.provenance["recipe"])
    target = args.markdown or args.output / "reproduction.md"
    image = target.with_name(f"{target.stem}-{ENVELOPE}")
    draw_envelope(results, image)
    training, _ = index_training(args.data)
    setup = (
        f"Trained on {len(training.limited(recipe.limit_images))} images of {args.data.name} in "
        f"{len(training.classes)} classes, from scratch, each network for as many epochs."
    )
    command = f"san report reproduce --data {args.data.name} --output DIR --recipe {args.recipe}"
    if args.epochs:
        command += f" --epochs {args.epochs}"
    target.write_text(page(results, recipe, setup, command, image.name))
    print(f"Wrote {target} and {image}.")


def run(args: argparse.Namespace) -> int:
    """Make the report that was asked for."""
    if args.kind == "reproduce":
        return _reproduce(args)
    drawn = curves.draw(args.run)
    if drawn is None:
        raise DataError(f"There is no log in {args.run} to draw.")
    print(f"Wrote {drawn}.")
    return 0
