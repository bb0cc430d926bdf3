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
from training.commands.options import at_least, resolutions
from training.config import Recipe, load_recipe, make_recipe
from training.data.folder import index_training
from training.errors import DataError, RecipeError
from training.loop import curves
from training.report.reproduction import BUNDLE, check_same, evaluate_all, train_all, variants
from training.report.reproduction_page import ENVELOPE, Results, draw_envelope, page, read_results
from training.runtime.distributed import Group, choose_device

HELP = "Reproduce the paper at small scale, or draw a run's curves."

EXAMPLES = """examples:
  san report reproduce --data images/ --output runs/reproduction
  san report curves runs/first"""


def _tests(trained: Sequence[int]) -> tuple[int, ...]:
    """The trained resolutions, those half way between, and one step beyond each end."""
    ordered = sorted(trained)
    above, below = 2 * ordered[-1] - ordered[-2], 2 * ordered[0] - ordered[1]
    middles = [(low + high) // 2 for low, high in pairwise(ordered)]
    sides = {*trained, *middles, above, below}
    return tuple(sorted((side for side in sides if side >= MIN_RESOLUTION), reverse=True))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    kinds = parser.add_subparsers(
        dest="kind", required=True, metavar="reproduce|curves", title="what to report"
    )
    reproduce = kinds.add_parser("reproduce", help="train, evaluate and report, resumably")
    reproduce.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="DIR",
        help="labelled images: train/CLASS/… and val/CLASS/…",
    )
    reproduce.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="folder of the runs"
    )
    reproduce.add_argument(
        "--recipe",
        default="small-resnet18",
        metavar="NAME",
        help="recipe, or a TOML file (default: small-resnet18)",
    )
    reproduce.add_argument(
        "--resolutions", type=resolutions, metavar="T,T", help="instead of the recipe's"
    )
    reproduce.add_argument(
        "--tests",
        type=resolutions,
        metavar="T,T",
        help="beside the trained ones (default: those between, one beyond each end)",
    )
    reproduce.add_argument(
        "--epochs", type=at_least(1), metavar="N", help="instead of the recipe's"
    )
    reproduce.add_argument(
        "--seed",
        type=at_least(0),
        default=0,
        metavar="N",
        help="seed of weights, order and crops (default: 0)",
    )
    reproduce.add_argument(
        "--jobs",
        type=at_least(1),
        default=1,
        metavar="N",
        help="runs at the same time (default: 1)",
    )
    reproduce.add_argument(
        "--limit-images",
        type=at_least(0),
        default=0,
        metavar="N",
        help="training images to use; 0 is all (default: 0)",
    )
    reproduce.add_argument(
        "--markdown", type=Path, metavar="FILE", help="where the page goes (default: --output)"
    )
    curve = kinds.add_parser("curves", help="draw a run's curves")
    curve.add_argument("run", type=Path, metavar="RUN", help="folder of the run")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _reproduce(args: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    # Complain about anything before anything starts.
    index_training(args.data)
    target = args.markdown or args.output / "reproduction.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    recipe = _recipe(args)
    if len(recipe.resolutions) < 2:
        raise RecipeError("A comparison needs at least two resolutions: give --resolutions T,T.")
    tests = _tests(recipe.resolutions)
    if args.tests:
        tests = tuple(sorted({*args.tests, *recipe.resolutions}, reverse=True))
    wanted = variants(recipe.resolutions)
    check_same(args.output, wanted, recipe)
    options = ["--recipe", args.recipe, "--resolutions", _joined(recipe.resolutions)]
    options += ["--seed", str(args.seed)]
    if args.epochs:
        options += ["--epochs", str(args.epochs)]
    if args.limit_images:
        options += ["--limit-images", str(args.limit_images)]
    signal.signal(signal.SIGTERM, _interrupt)  # so that the runs are asked to save, too
    failed = train_all(args.data, args.output, wanted, options, jobs=args.jobs)
    if failed:
        names = ", ".join(variant.name for variant in failed)
        raise DataError(f"These runs failed: {names}. See train.log in {args.output}/NAME.")
    alone = Group(0, 1, choose_device("auto"))
    evaluate_all(args.data, args.output, wanted, tests, alone)
    _write_page(args, target, read_results(args.output, recipe.resolutions, tests))
    return 0


def _joined(sides: Sequence[int]) -> str:
    return ",".join(map(str, sides))


def _recipe(args: argparse.Namespace) -> Recipe:
    """Return the recipe of the networks that are compared, before what the variants change."""
    given = {"resolutions": args.resolutions, "epochs": args.epochs}
    given["limit_images"] = args.limit_images
    chosen = {name: value for name, value in given.items() if value}
    return make_recipe(load_recipe(args.recipe), chosen, {"seed": args.seed})


def _command(args: argparse.Namespace) -> str:
    """Return the command that makes the same page, without paths of this machine."""
    command = f"san report reproduce --data {args.data.name} --output DIR --recipe {args.recipe}"
    given = {
        "--resolutions": _joined(args.resolutions or ()),
        "--tests": _joined(args.tests or ()),
        "--epochs": args.epochs,
        "--seed": args.seed,
        "--limit-images": args.limit_images,
    }
    return command + "".join(f" {name} {value}" for name, value in given.items() if value)


def _write_page(args: argparse.Namespace, target: Path, results: Results) -> None:
    manifest = read_manifest(args.output / "san" / BUNDLE)
    recipe = make_recipe(manifest.provenance["recipe"])
    image = target.with_name(f"{target.stem}-{ENVELOPE}")
    draw_envelope(results, image)
    training, _ = index_training(args.data)
    setup = (
        f"Trained on {len(training.limited(recipe.limit_images))} images of {args.data.name} in "
        f"{len(training.classes)} classes, from scratch, each network for as many epochs."
    )
    target.write_text(page(results, recipe, setup, _command(args), image.name))
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
