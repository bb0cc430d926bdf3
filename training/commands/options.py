"""Types of options that several commands have; argparse turns what they raise into a sentence."""

import argparse
from collections.abc import Callable
from pathlib import Path

from san_core.errors import ResolutionError
from san_core.resolution import check_resolution


def at_least(lowest: int) -> Callable[[str], int]:
    """Return the type of a whole number that is `lowest` or more."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from error
        if number < lowest:
            raise argparse.ArgumentTypeError(f"{number} is below {lowest}, the least there can be")
        return number

    return parse


def resolutions(text: str) -> tuple[int, ...]:
    """Read a list of resolutions, comma separated."""
    try:
        return tuple(check_resolution(int(part)) for part in text.split(","))
    except ResolutionError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers") from error


def add_target(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Declare where a changed bundle goes: nothing is overwritten unless that is asked for."""
    where = parser.add_mutually_exclusive_group(required=required)
    where.add_argument("-o", "--output", type=Path, metavar="BUNDLE", help="the bundle to write")
    where.add_argument("--in-place", action="store_true", help="change BUNDLE itself")


def add_limit(parser: argparse.ArgumentParser, default: int) -> None:
    """Declare how many images are used."""
    parser.add_argument(
        "--limit",
        type=at_least(0),
        default=default,
        metavar="N",
        help="images to use; 0 is all (default: %(default)s)",
    )


def add_machine(parser: argparse.ArgumentParser, device: str = "cpu") -> None:
    """Declare what decodes and what computes."""
    parser.add_argument(
        "--workers",
        type=at_least(-1),
        default=-1,
        metavar="N",
        help="processes that decode; -1: as many as the cores allow (default: %(default)s)",
    )
    parser.add_argument(
        "--device",
        default=device,
        metavar="DEVICE",
        help="cpu, cuda, or auto for the best there is (default: %(default)s)",
    )


def target_of(args: argparse.Namespace) -> Path:
    """The file that the bundle is to be written to."""
    path: Path = args.bundle if args.in_place else args.output
    return path
