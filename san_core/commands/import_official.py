"""`san import-official`: a checkpoint of the paper's published code becomes a bundle."""

import argparse
from pathlib import Path

from san_core.bundle import Manifest, save
from san_core.errors import SanError
from san_core.labels import class_names
from san_core.network.official_checkpoint import ARCHITECTURES, read_official

HELP = "Turn a checkpoint of the paper's published code into a bundle."

EXAMPLES = """examples:
  san import-official checkpoint.pth --arch resnet18 -o official.safetensors"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("checkpoint", type=Path, metavar="FILE", help="the checkpoint to read")
    parser.add_argument("--arch", choices=ARCHITECTURES, required=True, help="its architecture")
    parser.add_argument(
        "--classes", type=Path, metavar="FILE", help="text file with one class name a line"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="BUNDLE",
        help="the bundle to write (default: FILE with .safetensors)",
    )


def run(args: argparse.Namespace) -> int:
    """Convert and say where to."""
    network = read_official(args.checkpoint, args.arch)
    output = args.output or args.checkpoint.with_suffix(".safetensors")
    if output.resolve() == args.checkpoint.resolve():
        raise SanError("The bundle would overwrite the checkpoint; name another file with -o.")
    manifest = Manifest(
        name=f"san-{args.arch}",
        network=network.config,
        classes=class_names(network.config.num_classes, args.classes),
        provenance={"source": f"official checkpoint {args.checkpoint.name}"},
    )
    save(output, network, manifest)
    print(f"{output}: {args.arch}, trained at {', '.join(map(str, network.resolutions))}")
    return 0
