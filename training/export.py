"""From a run to a bundle."""

import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from san_core import bundle
from san_core.bundle import Accuracy, Manifest
from san_core.frontier import Precision
from san_core.mode import Mode
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from san_core.preprocessing import Preprocessing
from training.config import Recipe
from training.evaluation.accuracy import Score


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def provenance(recipe: Recipe, **more: Any) -> dict[str, Any]:
    """Tell how a bundle came about."""
    return {
        "recipe": recipe.model_dump(mode="json"),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["san", *sys.argv[1:]]),
        "san_serve": _version("san-serve"),
        "torch": torch.__version__,
        **more,
    }


def accuracy_entry(
    resolution: int,
    score: Score,
    dataset: str,
    mode: Mode = Mode.PROXY,
    precision: Precision = "float",
) -> Accuracy:
    """Turn a score into what the manifest keeps."""
    return Accuracy(
        resolution=resolution,
        mode=mode,
        precision=precision,
        top1=score.top1,
        top5=score.top5,
        n=score.n,
        dataset=dataset,
    )


def stored_type(path: Path) -> torch.dtype:
    """Return the number type in which a bundle keeps its kernels, to be kept when rewritten."""
    with safe_open(path, framework="pt") as file:
        names = [name for name in file.keys() if ".meta_learner." in name]  # noqa: SIM118
        half = bool(names) and file.get_slice(names[0]).get_dtype() == "F16"
    return torch.float16 if half else torch.float32


def export(
    path: Path,
    network: ScaleAdaptiveNetwork,
    *,
    classes: tuple[str, ...],
    preprocessing: Preprocessing,
    told: dict[str, Any],
    accuracy: tuple[Accuracy, ...] = (),
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write the bundle that the service loads."""
    manifest = Manifest(
        name=path.stem,
        network=network.config,
        classes=classes,
        preprocessing=preprocessing,
        accuracy=accuracy,
        provenance=told,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    bundle.save(path, network, manifest, dtype=dtype)
