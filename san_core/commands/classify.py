"""`san classify`: classify images from the command line."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from san_core.bundle import load
from san_core.classification import best_mode, best_resolution, classify
from san_core.errors import ImageError, SanError
from san_core.mode import Mode
from san_core.resolution import check_resolution

HELP = "Classify images with a bundle (the embedded default one unless another is named)."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="[BUNDLE] IMAGE",
        help="image files; a first path that ends in .safetensors is the bundle",
    )
    parser.add_argument("--resolution", type=int, help="default: the most accurate measured one")
    parser.add_argument(
        "--mode", type=Mode, choices=list(Mode), help="default: the most accurate at the resolution"
    )
    parser.add_argument("--top-k", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object per image")


def run(args: argparse.Namespace) -> int:
    """Classify each image; an unreadable one is named and makes the exit code 1."""
    named = args.paths[0].suffix == ".safetensors"
    images = args.paths[1:] if named else args.paths
    if not images:
        raise SanError("Name at least one image after the bundle.")
    if args.top_k < 1:
        raise SanError("--top-k is at least 1.")
    bundle = load(args.paths[0] if named else None)
    if args.resolution is None:
        resolution = best_resolution(bundle.manifest)
    else:
        resolution = check_resolution(args.resolution)
    mode = args.mode or best_mode(bundle.manifest, resolution)
    failed = 0
    for image in images:
        try:
            predictions = classify(bundle, image, resolution, mode, args.top_k)
        except ImageError as error:
            print(f"{image}: {error}", file=sys.stderr)
            failed += 1
            continue
        if args.json:
            answer = {
                "image": str(image),
                "resolution": resolution,
                "mode": mode,
                "predictions": [asdict(p) for p in predictions],
            }
            print(json.dumps(answer))
        else:
            print(f"{image} at {resolution} ({mode})")
            for p in predictions:
                print(f"  {p.score:6.1%}  {p.label}")
    return 1 if failed else 0
