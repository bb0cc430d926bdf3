"""`san prepare`: int8 and measured accuracy for a bundle, the last step before serving it."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from san_core.bundle import read_manifest
from san_core.errors import SanError
from training.commands.options import add_target, target_of
from training.data.folder import index_for_classes, validation_root

HELP = """Add int8 and measured accuracy to a bundle, so that the service can choose by both.

int8 needs images of any kind, accuracy needs labelled ones. Without labels the accuracy stays
unknown: the service then takes larger to be better and claims no accuracy."""

EXAMPLES = """examples:
  san prepare mine.safetensors --data labelled/ -o ready.safetensors
  san prepare mine.safetensors --images photos/ --data labelled/ --in-place"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the bundle to prepare")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="labelled images: DIR/CLASS/… or DIR/val/CLASS/…"
    )
    parser.add_argument(
        "--images", type=Path, metavar="DIR", help="images for int8 (default: those of --data)"
    )
    add_target(parser)
    parser.add_argument(
        "--limit",
        type=int,
        default=0,
        metavar="N",
        help="labelled images to use; 0 is all (default: 0)",
    )


def run(args: argparse.Namespace) -> int:
    """Quantize, then evaluate in both precisions, then say what is next."""
    if args.data is None and args.images is None:
        raise SanError("Say where images are: --data DIR for labelled ones, --images DIR for any.")
    if args.data is not None:  # labels that do not fit are told before minutes of work
        index_for_classes(validation_root(args.data), read_manifest(args.bundle).classes)
    target = target_of(args)
    _run(
        "training.commands.quantize",
        [args.bundle, "--images", args.images or args.data, "-o", target],
    )
    if args.data is None:
        print("No labelled images were given, so the accuracy is not known: add --data DIR.")
        print(f"Serve it: san serve {target}")
    else:
        limit = ["--limit", args.limit]
        both = ["--precisions", "float,int8", "--in-place"]
        code = _run("san_cli.evaluate", [target, "--data", args.data, *both, *limit])
        if code:
            return code
    return 0


def _run(module: str, arguments: list[object]) -> int:
    """Run another command as if it had been typed."""
    command = import_module(module)
    parser = argparse.ArgumentParser(prog=f"san {module.rpartition('.')[2]}")
    command.add_arguments(parser)
    args = parser.parse_args([str(argument) for argument in arguments])
    args.part_of_more = True  # what comes next is not for the user to do
    code: int = command.run(args)
    return code
