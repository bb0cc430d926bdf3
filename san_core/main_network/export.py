"""Exporting one main network as a plain file that anyone can run without san-serve."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import save_file

from san_core.bundle import Bundle
from san_core.errors import SanError
from san_core.main_network.folding import FoldedArchitecture
from san_core.mode import Mode

ExportFormat = Literal["onnx", "safetensors"]


def export(
    bundle: Bundle, resolution: int, mode: Mode, path: Path | str, how: ExportFormat
) -> None:
    """Write the main network of (resolution, mode) to `path`.

    "safetensors": the stock architecture's state dict, for its `load_state_dict`. "onnx": batch
    norm folded, input `images` [n, 3, T, T] normalised, output `logits` [n, classes], any n.
    """
    preprocessing = bundle.manifest.preprocessing
    own = replace(preprocessing, crop_ratio=preprocessing.crop(resolution), crops=())
    facts = {
        "architecture": bundle.manifest.network.architecture,
        "resolution": str(resolution),
        "mode": mode.value,
        "classes": json.dumps(bundle.manifest.classes),
        "preprocessing": json.dumps(asdict(own)),
        "bundle": f"{bundle.manifest.name} {bundle.manifest.version}",
    }
    state = bundle.network.generate(resolution, mode)
    if how == "safetensors":
        # Kernels are views of one buffer and safetensors wants each tensor on its own.
        save_file({name: t.clone().contiguous() for name, t in state.items()}, path, metadata=facts)
        return
    try:
        import onnx
        import onnxscript  # noqa: F401 (torch's exporter needs it)
    except ImportError as error:
        raise SanError("ONNX export needs the extra: pip install 'san-serve[export]'.") from error
    folded = FoldedArchitecture(bundle.network.skeleton)
    folded.module.load_state_dict(folded.fold(state), assign=True)
    images = torch.zeros(2, 3, resolution, resolution)
    batch = torch.export.Dim("batch", min=1)
    program = torch.onnx.export(
        folded.module,
        (images,),
        input_names=["images"],
        output_names=["logits"],
        dynamic_shapes=({0: batch},),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    model = program.model_proto
    onnx.helper.set_model_props(model, facts)
    onnx.save(model, path)
