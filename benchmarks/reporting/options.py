"""What every service benchmark's command line has in common."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from benchmarks.reporting.results import Report


def _leave(number: int, _: FrameType | None) -> None:
    # As an exception, so that every `finally` on the way out stops its server.
    raise SystemExit(128 + number)


def parser(description: str) -> argparse.ArgumentParser:
    """A parser with the common options; SIGTERM then unwinds like Ctrl-C."""
    signal.signal(signal.SIGTERM, _leave)
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--bundle", type=Path, help="bundle to serve (default: the embedded one)")
    made.add_argument("--quick", action="store_true", help="a smoke test: seconds, no figures")
    return made


def report(name: str, title: str, args: argparse.Namespace) -> Report:
    """An empty report that says how it was made.

    Of a path only the last part: the rest says where things lie on this machine.
    """
    paths = [path for path in vars(args).values() if isinstance(path, Path) and path.is_absolute()]
    given = " ".join(sys.argv[1:])
    for path in paths:
        given = given.replace(str(path), path.name)
    command = f"python -m benchmarks.{name} {given}".strip()
    settings = {
        key: value.name if value in paths else str(value) for key, value in vars(args).items()
    }
    return Report(name, title, command, quick=args.quick, settings=settings)
