"""`san classify`: classify images from the command line, within a budget if one is named."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from san_core.errors import SanError
from san_core.frontier import Precision
from san_core.mode import Mode

if TYPE_CHECKING:
    from service.serving.service import Service

HELP = """Classify images, or the images in a folder.

The same policy and engine as in `san serve` choose what fits into --budget-ms, after measuring this
machine once. Without a budget the most accurate point answers."""

EXAMPLES = """examples:
  san classify photo.jpg
  san classify --budget-ms 20 photo.jpg
  san classify --budget-ms 5 --json photos/
  san classify mine.safetensors photo.jpg --resolution 160"""

SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".avif", ".heic")
)
_LOOK_EVERY_S = 0.05
_URL = re.compile(r"https?:/")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="[BUNDLE] IMAGE",
        help="image files or folders; a first path that ends in .safetensors is the bundle "
        "(default: the embedded one)",
    )
    parser.add_argument(
        "--budget-ms", type=float, metavar="MS", help="answer within this time (default: no limit)"
    )
    parser.add_argument(
        "--top-k", type=int, default=5, metavar="N", help="how many classes (default: 5)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per image")
    pins = parser.add_argument_group("instead of letting the policy choose")
    pins.add_argument(
        "--resolution", type=int, metavar="PX", help="image size (default: the most accurate)"
    )
    pins.add_argument(
        "--mode",
        type=Mode,
        choices=list(Mode),
        help="how weights between trained sizes are made (default: the most accurate)",
    )
    pins.add_argument(
        "--precision",
        choices=get_args(Precision),
        help="the arithmetic (default: whichever is the better buy)",
    )


def run(args: argparse.Namespace) -> int:
    """Classify each image; an unreadable one is named and makes the exit code 1."""
    named = args.paths[0].suffix == ".safetensors"
    bundle = args.paths[0] if named else None
    paths = args.paths[1:] if named else args.paths
    if not paths:
        raise SanError("Name at least one image after the bundle.")
    if args.top_k < 1:
        raise SanError("--top-k is at least 1.")
    return asyncio.run(_classify(args, bundle, list(_files(paths))))


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            if _URL.match(str(path)):
                raise SanError(f"Images are read from files: download {path.name} first.")
            if not path.exists():
                raise SanError(f"There is no file {path}.")
            yield path
            continue
        found = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES)
        if not found:
            raise SanError(f"There is no image in {path}.")
        yield from found


async def _classify(args: argparse.Namespace, path: Path | None, images: list[Path]) -> int:
    """By the service's own pipeline, without HTTP."""
    from service.app import make_service
    from service.images.formats import decodable
    from service.request.terms import parse_budget, parse_terms
    from service.serving.pipeline import Given
    from service.settings import Settings

    if args.budget_ms is not None:
        parse_budget(f"{args.budget_ms:g}", "--budget-ms")
    names = ("budget_ms", "top_k", "resolution", "mode", "precision")
    given = [(name, getattr(args, name)) for name in names]
    terms = parse_terms([(name, str(value)) for name, value in given if value is not None])
    options: dict[str, Any] = {
        "bundle": path,
        "agreement_fraction": 0,
        "access_log": False,
        "formats": decodable(),
    }
    service = make_service(Settings(**options))
    failed = 0
    await service.start()
    try:
        await _ready(service)
        for image in images:
            try:
                begun_ms = service.clock()
                data = image.read_bytes()
                exchange = Given(str(image), terms, begun_ms, "command line", data)
                await service.pipeline.classify(exchange)
            except (SanError, OSError) as error:
                print(f"{image}: {error}", file=sys.stderr)
                failed += 1
                continue
            assert exchange.answered is not None
            answer = {"image": str(image)} | exchange.answered.to_dict()
            del answer["request_id"]
            if args.json:
                print(json.dumps(answer), flush=True)
                continue
            _show(answer)
    finally:
        await service.stop()
    return 1 if failed else 0


async def _ready(service: Service) -> None:
    """Wait until the service has measured this machine, and say so on a terminal."""
    told = False
    while not service.is_ready:
        if service.failure:
            raise SanError(service.failure)
        if not told and sys.stderr.isatty():
            print("Preparing the networks and measuring this machine …", end="", file=sys.stderr)
            sys.stderr.flush()
            told = True
        await asyncio.sleep(_LOOK_EVERY_S)
    if told:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _show(answer: dict[str, Any]) -> None:
    budget = answer["budget"]
    took = f"{budget['spent_ms']:.1f} ms"
    if budget["met"] is not None:
        spare = budget["budget_ms"] - budget["spent_ms"]
        kept = f"{spare:.1f} ms to spare" if budget["met"] else f"missed by {-spare:.1f} ms"
        took += f" of {budget['budget_ms']:g}, {kept}"
    point = f"{answer['resolution']} px ({answer['mode']}, {answer['precision']})"
    print(f"{answer['image']}: {point}, {took}")
    for prediction in answer["predictions"]:
        print(f"  {prediction['score']:6.1%}  {prediction['label']}")
    print(f"  {answer['reason']}")
