"""The network that every peer serves: the main network of one resolution, exported from the bundle.

Run by the peers' own interpreters: needs torch (and timm) or OpenVINO, Pillow and numpy. Where a
peer has a choice it gets the faster one: resize and crop in one pass, channels last, no copies.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

EXPORT = Path(os.environ.get("PEER_EXPORT", "."))
ENGINE = os.environ.get("PEER_ENGINE", "openvino")
THREADS = int(os.environ.get("PEER_THREADS", "1"))
WORKERS = int(os.environ.get("PEER_WORKERS", "1"))
PORT = int(os.environ.get("PEER_PORT", "8000"))


class _Preprocessing:
    def __init__(self, facts: dict[str, Any], resolution: int) -> None:
        self._resolution = resolution
        self._ratio = facts["crop_ratio"]
        bicubic = facts["interpolation"] == "bicubic"
        self._filter = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
        std = np.asarray(facts["std"], np.float32)
        self._scale = 1.0 / (255.0 * std)
        self._offset = -np.asarray(facts["mean"], np.float32) / std

    def __call__(self, data: bytes) -> np.ndarray:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        side = self._ratio * min(image.size)
        left, top = (image.width - side) / 2, (image.height - side) / 2
        box = (left, top, left + side, top + side)
        image = image.resize((self._resolution, self._resolution), self._filter, box)
        pixels = np.asarray(image)  # [T, T, 3]
        if ENGINE == "eager":
            return pixels * self._scale + self._offset
        return pixels.astype(np.float32)  # the graph normalises, as it does for san-serve


class _Eager:
    """Torch as it comes: the stock architecture with the exported state dict."""

    def __init__(self, architecture: str) -> None:
        import torch
        from safetensors.torch import load_file

        torch.set_num_threads(THREADS)
        self._torch = torch
        if architecture.startswith("timm:"):
            import timm

            self._model = timm.create_model(architecture.removeprefix("timm:"))
        else:
            from torchvision.models import get_model

            self._model = get_model(architecture)
        self._model.load_state_dict(load_file(EXPORT / "network.safetensors"))
        self._model.eval()

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        with self._torch.inference_mode():
            images = self._torch.from_numpy(batch).permute(0, 3, 1, 2).contiguous()
            return self._model(images).numpy()


class _OpenVino:
    """The very graph that san-serve runs, compiled with the same properties."""

    def __init__(self, resolution: int, precision: str) -> None:
        import openvino as ov

        core = ov.Core()
        properties = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": THREADS,
            "ENABLE_CPU_PINNING": False,
            "INFERENCE_PRECISION_HINT": precision,
        }
        self._requests = []
        for batch in (1, -1):
            model = core.read_model(EXPORT / "network.xml")
            model.reshape([batch, resolution, resolution, 3])
            compiled = core.compile_model(model, "CPU", properties)
            self._requests.append(compiled.create_infer_request())

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        request = self._requests[0 if len(batch) == 1 else 1]
        return next(iter(request.infer([batch]).values()))


class Classifier:
    """Bytes in, the five best classes out."""

    def __init__(self) -> None:
        facts = json.loads((EXPORT / "network.json").read_text())
        resolution = facts["resolution"]
        self.preprocess = _Preprocessing(facts["preprocessing"], resolution)
        self._classes = facts["classes"]
        self._run = (
            _Eager(facts["architecture"])
            if ENGINE == "eager"
            else _OpenVino(resolution, facts["precision"])
        )
        for n in (1, 4):  # what is slow once is not the peer's fault
            self.run(np.zeros((n, resolution, resolution, 3), np.float32))

    def run(self, batch: np.ndarray) -> np.ndarray:
        """Pixels [n, T, T, 3] to scores [n, classes]."""
        logits = self._run(batch)
        scores = np.exp(logits - logits.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)

    def best(self, scores: np.ndarray) -> list[dict[str, Any]]:
        """The answer for one image."""
        top = np.argpartition(scores, -5)[-5:]
        top = top[np.argsort(-scores[top])]
        return [
            {"index": int(i), "label": self._classes[i], "score": float(scores[i])} for i in top
        ]

    def classify(self, data: bytes) -> list[dict[str, Any]]:
        """All of it, for one image."""
        return self.best(self.run(self.preprocess(data)[None])[0])
