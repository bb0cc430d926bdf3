"""Classifying images with a bundle, without a service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from san_core.bundle import Bundle, Manifest
from san_core.mode import Mode
from san_core.preprocessing import decode

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Prediction:
    """A class and how sure the network is of it."""

    index: int
    label: str
    score: float


def best_mode(manifest: Manifest, resolution: int) -> Mode:
    """Return the mode with the best measured accuracy at a resolution; `proxy` if none was."""
    measured = [
        a for a in manifest.accuracy if a.resolution == resolution and a.precision == "float"
    ]
    return max(measured, key=lambda a: a.top1).mode if measured else Mode.PROXY


def best_resolution(manifest: Manifest) -> int:
    """Return the most accurate measured resolution; the largest trained one if none was."""
    measured = [a for a in manifest.accuracy if a.precision == "float"]
    if not measured:
        return manifest.network.resolutions[0]
    return max(measured, key=lambda a: (a.top1, -a.resolution)).resolution


def top_predictions(
    logits: torch.Tensor, classes: Sequence[str], top_k: int = 5
) -> list[Prediction]:
    """Return the `top_k` most probable classes of logits [classes]."""
    scores, indices = logits.softmax(-1).topk(min(top_k, len(classes)))
    pairs = zip(indices.tolist(), scores.tolist(), strict=True)
    return [Prediction(index, classes[index], score) for index, score in pairs]


def classify(
    bundle: Bundle, image: bytes | Path, resolution: int, mode: Mode, top_k: int = 5
) -> list[Prediction]:
    """Classify one image file at (resolution, mode)."""
    import torch

    images = bundle.manifest.preprocessing(decode(image), resolution)[None]
    with torch.inference_mode():
        logits = bundle.network(images, resolution, mode)[0]
    return top_predictions(logits, bundle.manifest.classes, top_k)
