"""`san calibrate`: batch norm statistics for `ideal` at more resolutions."""

import argparse
import sys
from pathlib import Path

from san_core import bundle as bundles
from training.commands.options import add_limit, add_machine, add_target, resolutions, target_of
from training.data.folder import index_unlabelled
from training.evaluation.calibrate import calibrate_all, images_at
from training.export import stored_type
from training.runtime.distributed import choose_device

HELP = """Calibrate batch norm at more image sizes, for the mode `ideal`.

Any images will do; they need no labels."""

EXAMPLES = """examples:
  san calibrate mine.safetensors --images photos/ --resolutions 144,176 -o calibrated.safetensors"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the bundle to start from")
    parser.add_argument("--images", type=Path, required=True, metavar="DIR", help="any images")
    parser.add_argument(
        "--resolutions",
        type=resolutions,
        required=True,
        metavar="T,T",
        help="image sizes to calibrate",
    )
    add_target(parser)
    add_limit(parser, 2000)
    add_machine(parser)


def run(args: argparse.Namespace) -> int:
    """Calibrate and write the bundle."""
    device = choose_device(args.device)
    loaded = bundles.load(args.bundle, device)
    folder = index_unlabelled(args.images).limited(args.limit)
    preprocessing = loaded.manifest.preprocessing

    def told(resolution: int) -> None:
        print(f"Calibrating {resolution} on {len(folder)} images …", file=sys.stderr)

    done = calibrate_all(
        loaded.network,
        args.resolutions,
        lambda side: images_at(folder, side, preprocessing, device, workers=args.workers),
        told,
    )
    for resolution in sorted(set(args.resolutions) - set(done)):
        print(f"{resolution} is a trained resolution: nothing to calibrate.", file=sys.stderr)
    # What was measured in mode `ideal` before does not hold for the new statistics.
    accuracy = tuple(
        a for a in loaded.manifest.accuracy if a.mode.value != "ideal" or a.resolution not in done
    )
    manifest = loaded.manifest.model_copy(update={"accuracy": accuracy})
    target = target_of(args)
    kept = stored_type(args.bundle)
    bundles.save(target, loaded.network.cpu(), manifest, dtype=kept, extras=loaded.extras)
    print(f"Wrote {target}: calibrated at {', '.join(map(str, done)) or 'nothing new'}.")
    print(f"Measure it: san evaluate {target} --data DIR --modes ideal --in-place")
    return 0
