"""The networks that engines are compared with: the bundle's, or an untrained one of the same kind.

Speed does not depend on what the weights are.
"""

from __future__ import annotations

from pathlib import Path

import torch

from san_core.bundle import DEFAULT_BUNDLE, Bundle, Manifest, load
from san_core.main_network.folding import FoldedArchitecture
from san_core.main_network.quantization import Range, quantisable, to_extras
from san_core.network.network_config import NetworkConfig
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork

DEFAULT_ARCHITECTURE = "timm:tf_efficientnet_lite0"
RESOLUTIONS = (224, 192, 160, 128, 96)


def untrained(architecture: str, resolutions: tuple[int, ...] = RESOLUTIONS) -> Bundle:
    """A bundle with random kernels, quantised as if every activation went up to 6."""
    torch.manual_seed(0)
    network = ScaleAdaptiveNetwork(NetworkConfig(architecture, resolutions))
    network.requires_grad_(False).eval()
    classes = tuple(f"class {i}" for i in range(network.config.num_classes))
    folded = FoldedArchitecture(network.skeleton)
    # The first layer sees the image, which has both signs; the others nearly all see ReLUs.
    layers = list(quantisable(folded.module))
    ranges = {name: Range(6.0, signed=name == layers[0]) for name in layers}
    extras: dict[str, torch.Tensor] = {}
    for resolution in resolutions:
        extras |= to_extras(resolution, ranges)
    manifest = Manifest(name="untrained", network=network.config, classes=classes)
    return Bundle(manifest, network, extras)


def chosen(path: Path | None) -> Bundle:
    """The bundle at a path, else the embedded one, else an untrained one like it."""
    if path is None and not DEFAULT_BUNDLE.exists():
        return untrained(DEFAULT_ARCHITECTURE)
    return load(path)
