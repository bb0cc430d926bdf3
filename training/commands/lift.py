"""`san lift`: turn pretrained CNNs into a bundle that can be served, or distilled further."""

import argparse
import datetime
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from san_core import bundle
from san_core.bundle import Manifest, replace_accuracy
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from san_core.preprocessing import Preprocessing
from san_core.resolution import check_resolution, check_trained
from training.commands.options import at_least, resolutions
from training.data.folder import index_for_classes, validation_root
from training.errors import PretrainedError
from training.evaluation.accuracy import Score
from training.evaluation.probes import Probe, measure
from training.export import accuracy_entry
from training.lift.lift import Lifted, StateDict, lift
from training.lift.pretrained import (
    PACKAGES,
    Pretrained,
    fit,
    imagenet_classes,
    native_of,
    read_pretrained,
)
from training.runtime.distributed import Group

EXAMPLES = """examples:
  san lift --arch resnet50 --weights resnet50.pth --classes imagenet -o lifted.safetensors
  san lift --arch mobilenet_v2 --weights torchvision:IMAGENET1K_V2 -o lifted.safetensors"""
HELP = "Lift a pretrained CNN into a bundle: any resolution from one set of weights."

IMAGENET = "imagenet"
_NAMES_HINT = "; name them with --classes FILE, or --classes imagenet for ImageNet-1k's"
_SAME = 1e-5
"""How closely the lifted network must agree with the original at the native resolution."""


def _three(text: str) -> tuple[float, float, float]:
    try:
        red, green, blue = (float(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not three numbers R,G,B") from error
    return red, green, blue


def _crops(text: str) -> tuple[tuple[int, float], ...]:
    try:
        pairs = (part.split("=") for part in text.split(","))
        return tuple((int(resolution), float(share)) for resolution, share in pairs)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 96=0.65,224=0.875") from error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--arch", required=True, help="torchvision CNN, or timm:NAME")
    parser.add_argument(
        "--weights",
        required=True,
        action="append",
        metavar="[RESOLUTION=]SOURCE",
        help="a file (safetensors or a state dict), torchvision:NAME, timm:NAME or package:NAME "
        f"({', '.join(PACKAGES)}); repeat it as 224=FILE 160=FILE if you trained the "
        "architecture separately at several sizes",
    )
    parser.add_argument(
        "--native",
        type=at_least(1),
        metavar="PX",
        help="image size the network was trained at (default: the package's, else 224)",
    )
    parser.add_argument(
        "--resolutions",
        type=resolutions,
        default=(224, 192, 160, 128, 96),
        metavar="T,T",
        help="sizes to train (default: 224,192,160,128,96)",
    )
    parser.add_argument(
        "--knots",
        type=resolutions,
        default=(),
        metavar="T,T",
        help="make the kernels piecewise linear, with the slope changing here, largest first; "
        "from the first knot up the network stays the pretrained one",
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="BUNDLE", help="the bundle to write"
    )
    parser.add_argument("--name", metavar="NAME", help="name of the bundle (default: the file's)")
    parser.add_argument(
        "--classes",
        metavar="FILE|imagenet",
        help="class names: a file with one per line, or imagenet for the 1,000 of ImageNet-1k "
        "(default: those that come with the weights, else class 0, class 1, …)",
    )
    parser.add_argument(
        "--mean",
        type=_three,
        metavar="R,G,B",
        help="of the pixels, on a scale of 0 to 1 (default: as the weights say, else ImageNet's)",
    )
    parser.add_argument(
        "--std",
        type=_three,
        metavar="R,G,B",
        help="of the pixels, on a scale of 0 to 1 (default: as the weights say, else ImageNet's)",
    )
    parser.add_argument(
        "--interpolation",
        choices=("bilinear", "bicubic"),
        help="how images are resized (default: as the weights say)",
    )
    parser.add_argument(
        "--crop-ratio",
        type=float,
        metavar="SHARE",
        help="centre crop's share of the shorter side (default: as the weights say)",
    )
    parser.add_argument(
        "--crops",
        type=_crops,
        metavar="T=SHARE,...",
        help="the share for some resolutions, interpolated in between, e.g. 96=0.65,224=0.875",
    )
    parser.add_argument("--half", action="store_true", help="store kernels in half precision")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="labelled images to measure before and after on"
    )
    parser.add_argument(
        "--limit", type=at_least(0), default=0, metavar="N", help="use only N of them"
    )


def _sources(texts: list[str], native: int | None) -> tuple[dict[int, str], int]:
    """Read the --weights options: which source is of which resolution, and which is native."""
    sources: dict[int, str] = {}
    for text in texts:
        head, equals, rest = text.partition("=")
        if equals and head.isdecimal():
            resolution, source = int(head), rest
        else:
            resolution, source = native or native_of(text), text
        if check_resolution(resolution) in sources:
            raise PretrainedError(
                f"Two --weights are for {resolution}. Write --weights RESOLUTION=SOURCE for each."
            )
        sources[resolution] = source
    return sources, native or max(sources)


def _class_names(given: str | None, known: Pretrained, count: int) -> tuple[tuple[str, ...], str]:
    """The names, and where they come from."""
    if given == IMAGENET:
        names, source = imagenet_classes(), "ImageNet-1k, as --classes says"
    elif given is not None:
        try:
            lines = Path(given).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise PretrainedError(f"The class names {given} cannot be read: {error}.") from error
        names, source = tuple(line.strip() for line in lines if line.strip()), given
    elif known.classes:
        names, source = known.classes, "the weights' own"
    else:
        names, source = tuple(f"class {index}" for index in range(count)), "numbered"
    if len(names) != count:
        raise PretrainedError(f"There are {len(names)} class names for {count} classes.")
    return names, source


def _preprocessing(args: argparse.Namespace, known: Preprocessing | None) -> Preprocessing:
    base = known or Preprocessing()
    return Preprocessing(
        base.crop_ratio if args.crop_ratio is None else args.crop_ratio,
        args.interpolation or base.interpolation,
        args.mean or base.mean,
        args.std or base.std,
        args.crops or base.crops,
    )


@torch.no_grad()
def difference(lifted: Lifted, original: torch.nn.Module) -> float:
    """Return the largest difference of logits at the native resolution, relative to the logits."""
    generator = torch.Generator().manual_seed(0)
    side = lifted.native
    images = torch.randn(2, 3, side, side, generator=generator)
    expected = original.eval()(images)
    made = lifted.network(images, side)
    return float((made - expected).abs().max() / expected.abs().max().clamp(min=1.0))


def _accuracies(
    args: argparse.Namespace,
    lifted: Lifted,
    states: Mapping[int, StateDict],
    manifest: Manifest,
) -> Manifest:
    """Measure each given network at its resolution, then the lifted one at every trained one."""
    folder = index_for_classes(validation_root(args.data), manifest.classes).limited(args.limit)
    group = Group(0, 1, torch.device("cpu"))
    config = lifted.network.config

    def top1(network: ScaleAdaptiveNetwork, sides: Iterable[int]) -> dict[int, Score]:
        probes = [Probe(side, side) for side in sides]
        found = measure(network, probes, folder, manifest.preprocessing, group)
        return {probe.test: score for probe, score in found.scores.items()}

    before: dict[int, Score] = {}
    for side, state in states.items():
        alone = lift(
            config.architecture,
            {side: state},
            native=side,
            resolutions=(side,),
            num_classes=config.num_classes,
        )
        before |= top1(alone.network, (side,))
    after = top1(lifted.network, config.resolutions)
    print("resolution   top-1 before   top-1 after")
    for side, score in after.items():
        known = f"{before[side].top1:.1%}" if side in before else "-"
        print(f"{side:>10} {known:>14} {score.top1:>13.1%}")
    measured = tuple(accuracy_entry(side, score, folder.name) for side, score in after.items())
    return replace_accuracy(manifest, measured)


def _report(lifted: Lifted, apart: float, out: Path) -> None:
    if len(lifted.residuals) > 1:
        print("resolution   kernels off by   head off by")
        for residual in lifted.residuals:
            print(f"{residual.resolution:>10} {residual.kernels:>15.2%} {residual.shared:>13.2%}")
        print(f"at {lifted.native} px outputs differ by {apart:.1e} of the largest")
    else:
        print(f"at {lifted.native} px outputs are the original's (largest difference: {apart:.1g})")
    size = out.stat().st_size / 1e6
    trained = ", ".join(map(str, lifted.network.resolutions))
    print(f"{out}: {size:.1f} MB, resolutions {trained}")


def run(args: argparse.Namespace) -> int:
    """Read, fit, lift, check, write."""
    sources, native = _sources(args.weights, args.native)
    trained = check_trained(args.resolutions)
    fitted = {}
    for resolution, source in sources.items():
        fitted[resolution] = fit(read_pretrained(source, args.arch), args.arch)
    if native not in fitted:
        raise PretrainedError(f"No --weights were given for the native resolution {native}.")
    original, known = fitted[native]
    with torch.no_grad():
        count = int(original(torch.zeros(1, 3, native, native)).shape[1])
    states = {resolution: pretrained.state for resolution, (_, pretrained) in fitted.items()}
    lifted = lift(
        args.arch,
        states,
        native=native,
        resolutions=trained,
        num_classes=count,
        knots=args.knots,
    )
    apart = difference(lifted, original)
    if len(fitted) == 1 and not apart <= _SAME:
        raise PretrainedError(
            f"The lifted {args.arch} differs from the original at {native} by {apart:.1e}; its "
            "forward pass depends on something else than its tensors, so it cannot be lifted."
        )
    classes, named_by = _class_names(args.classes, known, count)
    provenance = {
        "class_names": named_by,
        "command": shlex.join(["san", *sys.argv[1:]]),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "lifted": {
            "native": native,
            "weights": {str(r): p.source for r, (_, p) in fitted.items()},
            "residuals": {
                str(r.resolution): {"kernels": r.kernels, "shared": r.shared}
                for r in lifted.residuals
            },
        },
    }
    if known.licence:
        provenance["licence"] = known.licence
    manifest = Manifest(
        name=args.name or args.output.stem,
        network=lifted.network.config,
        classes=classes,
        preprocessing=_preprocessing(args, known.preprocessing),
        provenance=provenance,
    )
    if args.data is not None:
        manifest = _accuracies(args, lifted, states, manifest)
    dtype = torch.float16 if args.half else torch.float32
    args.output.parent.mkdir(parents=True, exist_ok=True)
    bundle.save(args.output, lifted.network, manifest, dtype=dtype)
    _report(lifted, apart, args.output)
    print(f"class names: {named_by}{_NAMES_HINT if named_by == 'numbered' else ''}")
    print(
        f"Next, better at small sizes: san train --from {args.output} --images PHOTOS "
        "--recipe distil --export mine.safetensors\n"
        f"Or int8 and measured accuracy: san prepare {args.output} --data LABELLED "
        "-o ready.safetensors\n"
        f"Or serve it as it is: san serve {args.output}"
    )
    return 0
