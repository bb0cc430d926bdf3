"""Writing the network the peers serve: the same weights, the same OpenVINO graph as ours."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from san_core.bundle import Bundle
from san_core.frontier import OperatingPoint
from san_core.main_network.export import export
from san_core.mode import Mode
from service.engines.openvino.cpu_probe import ISA_VARIABLE, CpuDecision, apply


def export_network(
    bundle: Bundle, resolution: int, directory: Path, decision: CpuDecision
) -> dict[str, str]:
    """Fill a directory for `network.py`; returns the environment peers need for this CPU."""
    apply(decision)
    import openvino

    from service.engines.openvino.engine import OpenVinoEngine

    export(bundle, resolution, Mode.PROXY, directory / "network.safetensors", "safetensors")
    engine = OpenVinoEngine(bundle, threads=1, max_batch=1, decision=decision)
    graph = engine.graph(OperatingPoint(resolution, Mode.PROXY))
    openvino.save_model(graph, directory / "network.xml", compress_to_fp16=False)
    facts = {
        "architecture": bundle.manifest.network.architecture,
        "resolution": resolution,
        "precision": "f32",  # what our engine's float points run in
        "preprocessing": asdict(bundle.manifest.preprocessing),
        "classes": bundle.manifest.classes,
    }
    (directory / "network.json").write_text(json.dumps(facts))
    return {ISA_VARIABLE: decision.isa} if decision.isa else {}
