"""`san export`: one main network as a file that anyone can run."""

import argparse
from pathlib import Path

from san_core.bundle import load
from san_core.main_network.export import export
from san_core.mode import Mode

EXAMPLES = """examples:
  san export --resolution 144
  san export mine.safetensors --resolution 96 --format safetensors -o small.safetensors"""
HELP = "Write the main network of one (resolution, mode) as ONNX or safetensors."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "bundle",
        type=Path,
        nargs="?",
        metavar="BUNDLE",
        help="the bundle to take it from (default: the embedded one)",
    )
    parser.add_argument(
        "--resolution", type=int, required=True, metavar="PX", help="image size in pixels"
    )
    parser.add_argument(
        "--mode",
        type=Mode,
        choices=list(Mode),
        default=Mode.PROXY,
        help="how weights between trained sizes are made (default: proxy)",
    )
    parser.add_argument(
        "--format",
        choices=["onnx", "safetensors"],
        default="onnx",
        help="kind of file (default: onnx)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the file to write (default: NAME-RESOLUTION-MODE.FORMAT)",
    )


def run(args: argparse.Namespace) -> int:
    """Export and say where to."""
    bundle = load(args.bundle)
    default = f"{bundle.manifest.name}-{args.resolution}-{args.mode}.{args.format}"
    output = args.output or Path(default)
    output.parent.mkdir(parents=True, exist_ok=True)
    export(bundle, args.resolution, args.mode, output, args.format)
    print(f"{output}: {bundle.manifest.network.architecture} at {args.resolution} ({args.mode})")
    return 0
