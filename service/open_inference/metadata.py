"""What the server and the model say about themselves."""

from __future__ import annotations

from typing import Any

from san_core.bundle import Manifest
from san_core.resolution import MIN_RESOLUTION
from service.open_inference.request import IMAGE, LOGITS, MAX_IMAGES, PIXELS, RESOLUTION, SCORES

EXTENSIONS = ("binary_tensor_data", "classification", "parameters")


def server_metadata(version: str) -> dict[str, Any]:
    """Name, version and extensions."""
    return {"name": "san-serve", "version": version, "extensions": list(EXTENSIONS)}


def model_metadata(manifest: Manifest, platform: str, max_resolution: int) -> dict[str, Any]:
    """The inputs and outputs, and what a client needs to preprocess by itself.

    A request has one of the two inputs.
    """
    classes = manifest.network.num_classes
    preprocessing = manifest.preprocessing
    return {
        "name": manifest.name,
        "versions": [manifest.version],
        "platform": platform,
        "inputs": [
            {"name": IMAGE, "datatype": "BYTES", "shape": [-1]},
            {"name": PIXELS, "datatype": "FP32", "shape": [-1, 3, -1, -1]},
        ],
        "outputs": [
            {"name": LOGITS, "datatype": "FP32", "shape": [-1, classes]},
            {"name": SCORES, "datatype": "FP32", "shape": [-1, classes]},
            {"name": RESOLUTION, "datatype": "INT32", "shape": [-1]},
        ],
        "parameters": {
            "max_images": MAX_IMAGES,
            "min_resolution": MIN_RESOLUTION,
            "max_resolution": max_resolution,
            "trained_resolutions": list(manifest.network.resolutions),
            "crop_ratio": preprocessing.crop_ratio,
            "interpolation": preprocessing.interpolation,
            "mean": list(preprocessing.mean),
            "std": list(preprocessing.std),
        },
    }
