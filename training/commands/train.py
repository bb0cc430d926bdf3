"""`san train`: from images to a bundle."""

import argparse
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from san_core.command_line import given_fields
from training.config import Recipe, add_recipe_arguments, load_recipe, make_recipe
from training.data.folder import index_training
from training.errors import RecipeError
from training.loop import checkpoint
from training.run import Task, from_bundle, from_scratch, train
from training.runtime.distributed import joined_group
from training.runtime.memory import keep_freed_memory

HELP = """Teach a lifted network smaller image sizes, or train one from labelled images.

With --from and --images the network at its own size teaches the smaller sizes, without labels.
With --data it is trained on labelled images. An interrupted run goes on with --resume."""

EXAMPLES = """examples:
  san train --from lifted.safetensors --images photos/ --recipe distil --export mine.safetensors
  san train --data images/ --recipe small --output runs/first --export mine.safetensors
  san train --output runs/first --data images/ --resume"""

_INTERRUPTED = 130
"""What shells return for a program that Ctrl-C ended: 128 and the signal's number."""
_RUNS = Path("runs")
_BUNDLE = "bundle.safetensors"

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.usage = "san train (--from BUNDLE --images DIR | --data DIR) [--option VALUE …]"
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="BUNDLE", help="the bundle to start from"
    )
    parser.add_argument(
        "--images", type=Path, metavar="DIR", help="images of any kind to teach with, no labels"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="labelled images: train/CLASS/… and val/CLASS/…"
    )
    parser.add_argument(
        "--output", type=Path, metavar="RUN", help="run folder (default with --from: runs/BUNDLE)"
    )
    parser.add_argument("--resume", action="store_true", help="continue the run in --output")
    parser.add_argument(
        "--export",
        type=Path,
        metavar="BUNDLE",
        help=f"write a bundle at the end (default with --images: RUN/{_BUNDLE})",
    )
    parser.add_argument(
        "--baseline",
        action="store_true",
        help="an individually trained network: one resolution, kernels of its own",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_recipe_arguments(parser)


def _settle_places(args: argparse.Namespace) -> list[str]:
    """Check where images come from and settle where run and bundle go; return what to say."""
    settled = []
    if args.images is not None and args.source is None:
        raise RecipeError("--images distils a bundle: say which one with --from.")
    if args.images is None and args.data is None:
        raise RecipeError(
            "Say where the images are: --from BUNDLE --images DIR, or --data DIR with labels."
        )
    if args.output is None:
        if args.source is None:
            raise RecipeError("Say where the run shall be kept with --output RUN.")
        args.output = _RUNS / args.source.stem
        settled.append(f"The run is kept in {args.output}.")
    if args.images is not None and args.export is None:
        args.export = args.output / _BUNDLE
        settled.append(f"The distilled bundle will be {args.export}.")
    return settled


def _stored(args: argparse.Namespace) -> dict[str, Any]:
    """Return the recipe of the run that is resumed, so that its options need not be repeated."""
    path = args.output / checkpoint.FILE_NAME
    if not (args.resume and path.is_file()):
        return {}
    recipe: dict[str, Any] = checkpoint.read_state(path)["recipe"]
    return recipe


def _layers(args: argparse.Namespace) -> Callable[[dict[str, Any]], Recipe]:
    """Return what puts the named recipe, the resumed run's and the options over some defaults."""
    named = load_recipe(args.recipe) if args.recipe else {}
    baseline = {"meta_learner": "private", "beta": 0.0} if args.baseline else {}
    stored = _stored(args)
    return lambda defaults: make_recipe(defaults, named, baseline, stored, given_fields(args))


def _prepare(args: argparse.Namespace) -> tuple[Task, Recipe]:
    layered = _layers(args)
    if args.images is not None:
        from training.distil import distil  # only for this kind of run

        return distil.prepare(args.source, args.images, args.data, layered, quiet=args.quiet)
    if args.source is not None:
        return from_bundle(args.source, args.data, layered)
    training, validation = index_training(args.data)
    recipe = layered({})
    if args.baseline and len(recipe.resolutions) != 1:
        raise RecipeError("A baseline has one resolution: say which with --resolutions.")
    return from_scratch(recipe, training, validation), recipe


def run(args: argparse.Namespace) -> int:
    """Train, and export if asked."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    keep_freed_memory()
    settled = _settle_places(args)
    task, recipe = _prepare(args)
    for text in settled:
        log.info(text)
    with joined_group(recipe.device) as group:
        if not group.is_main:
            logging.disable(logging.INFO)
        done = train(
            task,
            recipe,
            group,
            args.output,
            resume=args.resume,
            bundle=args.export,
            quiet=args.quiet,
        )
    return 0 if done else _INTERRUPTED
