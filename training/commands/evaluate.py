"""`san evaluate`: the accuracy of every (resolution, mode), into the bundle and into files."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast, get_args

from tqdm import tqdm

from san_core import bundle as bundles
from san_core.bundle import Bundle, replace_accuracy
from san_core.errors import BundleError
from san_core.frontier import Precision
from san_core.mode import Mode
from training.commands.options import (
    add_limit,
    add_machine,
    add_target,
    at_least,
    resolutions,
    target_of,
)
from training.data.folder import ImageFolder, index_for_classes, validation_root
from training.errors import RecipeError
from training.evaluation.calibrate import calibrate_all, calibration_images
from training.evaluation.evaluate import Engine, Evaluation, evaluate
from training.export import accuracy_entry, stored_type
from training.report import evaluation_page
from training.report.markdown import with_interval
from training.runtime.distributed import Group, joined_group

HELP = """Measure the accuracy of a bundle at every image size.

The figures are shown; with -o or --in-place they are noted in a bundle, and the service chooses by
them."""

EXAMPLES = """examples:
  san evaluate mine.safetensors --data labelled/
  san evaluate mine.safetensors --data labelled/ --precisions float,int8 --in-place
  san evaluate mine.safetensors --data labelled/ --resolutions 144,128 --modes proxy,ideal"""

MakeEngine = Callable[[Bundle], Engine | None]
"""Makes the engine that runs a bundle's networks; None leaves them to torch."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the bundle to measure")
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="DIR",
        help="labelled images: DIR/CLASS/… or DIR/val/CLASS/…",
    )
    add_target(parser, required=False)
    parser.add_argument(
        "--resolutions",
        type=resolutions,
        metavar="T,T",
        help="image sizes (default: the trained ones)",
    )
    parser.add_argument(
        "--modes",
        default="proxy",
        metavar="M,M",
        help="modes to measure: proxy, ideal, data_free (default: proxy)",
    )
    parser.add_argument(
        "--precisions",
        default="float",
        metavar="P,P",
        help="float, int8 or both; int8 needs `san quantize` first (default: float)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help="all tables of the paper: Markdown, JSON, PNG"
    )
    parser.add_argument(
        "--calibrate",
        type=at_least(0),
        default=0,
        metavar="N",
        help="first calibrate `ideal` on N images of DATA/train (default: 0, none)",
    )
    add_limit(parser, 0)
    parser.add_argument(
        "--batch-size",
        type=at_least(1),
        default=64,
        metavar="N",
        help="images at once (default: 64)",
    )
    parser.add_argument(
        "--max-unreadable",
        type=at_least(0),
        default=100,
        metavar="N",
        help="broken files to skip (default: 100)",
    )
    add_machine(parser, device="auto")


def _modes(text: str) -> list[Mode]:
    try:
        return [Mode(part.strip()) for part in text.split(",")]
    except ValueError as error:
        known = ", ".join(mode.value for mode in Mode)
        raise RecipeError(f"{error}; the modes are {known}.") from error


def _precisions(text: str) -> list[Precision]:
    found: list[Precision] = []
    for part in (part.strip() for part in text.split(",")):
        if part not in get_args(Precision):
            raise RecipeError(f"{part!r} is no precision; they are float and int8.")
        found.append(cast(Precision, part))
    return found


def _keep(bundle: Bundle, found: Evaluation, folder: ImageFolder, path: Path, target: Path) -> None:
    measured = tuple(
        accuracy_entry(e.resolution, e.score, folder.name, e.mode, e.precision)
        for e in found.entries
    )
    manifest = replace_accuracy(bundle.manifest, measured)
    try:
        bundles.save(
            target, bundle.network.cpu(), manifest, dtype=stored_type(path), extras=bundle.extras
        )
        print(f"Noted in {target}. Serve it: san serve {target}")
    except BundleError as error:
        print(f"The accuracies were not noted in the bundle: {error}", file=sys.stderr)


def _engine(
    bundle: Bundle, group: Group, args: argparse.Namespace, make: MakeEngine | None
) -> Engine | None:
    """An engine for the CPU; it reads the file, so not for statistics that were just calibrated."""
    if make is None or group.device.type != "cpu" or args.calibrate or args.report is not None:
        return None
    return make(bundle)


class _Bar:
    """A progress bar with rate and time left, there from the first second."""

    def __init__(self) -> None:
        self._bar: tqdm[Any] | None = None

    def __call__(self, done: int, of: int) -> None:
        if self._bar is None:
            self._bar = tqdm(total=of, unit="img", dynamic_ncols=True, leave=False)
        self._bar.total = of
        self._bar.update(done - self._bar.n)
        if done >= of:
            self._bar.close()


def run(args: argparse.Namespace, make_engine: MakeEngine | None = None) -> int:
    """Measure, show, and write what was asked for."""
    modes = _modes(args.modes)
    precisions = _precisions(args.precisions)
    for folder in (args.report, args.json and args.json.parent):
        if folder is not None:  # before anything is measured that could not be written
            folder.mkdir(parents=True, exist_ok=True)
    with joined_group(args.device) as group:
        bundle = bundles.load(args.bundle)
        tests = args.resolutions or bundle.network.resolutions
        labelled = index_for_classes(validation_root(args.data), bundle.manifest.classes)
        labelled = labelled.limited(args.limit)
        bundle.network.to(group.device)
        bar = _Bar() if group.is_main and sys.stderr.isatty() else None
        if bar is not None:
            bar(0, len(labelled))
        images = None
        if args.calibrate:
            images = calibration_images(
                args.data,
                args.calibrate,
                bundle.manifest.preprocessing,
                group.device,
                workers=args.workers,
            )
        if images is not None and Mode.IDEAL in modes:
            calibrate_all(bundle.network, tests, images)
        found = evaluate(
            bundle,
            labelled,
            tests,
            modes,
            group,
            precisions=precisions,
            full=args.report is not None,
            images=images,
            batch_size=args.batch_size,
            workers=args.workers,
            max_unreadable=args.max_unreadable,
            progress=bar,
            engine=_engine(bundle, group, args, make_engine),
        )
        if not group.is_main:
            return 0
        for entry in found.entries:
            note = "" if entry.mode is not Mode.IDEAL or entry.calibrated else "  (uncalibrated)"
            if entry.resolution in bundle.network.resolutions:
                note = "  (trained)"
            score = entry.score
            print(
                f"{entry.resolution:>5} {entry.mode.value:<10} {entry.precision:<5} "
                f"top-1 {with_interval(score)} %  top-5 {score.top5:.1%}  "
                f"ECE {score.calibration_error:.3f}  n {score.n}{note}"
            )
        if args.in_place or args.output:
            _keep(bundle, found, labelled, args.bundle, target_of(args))
        else:
            print("To let the service choose by these figures, add --in-place or -o BUNDLE.")
        if args.json:
            args.json.write_text(json.dumps(found.to_json(), indent=1))
        if args.report:
            for path in evaluation_page.write(found, args.report):
                print(f"Wrote {path}.")
    return 0
