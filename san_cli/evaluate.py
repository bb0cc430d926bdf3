"""`san evaluate`, with the service's engine: several times as fast as torch on a CPU."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from san_core.bundle import Bundle
from san_core.frontier import OperatingPoint, Precision
from san_core.mode import Mode
from service.engines.openvino.engine import OpenVinoEngine
from service.errors import EngineUnavailableError
from service.runtime.cores import available_cores
from training.commands import evaluate
from training.evaluation.evaluate import Engine
from training.evaluation.probes import Run

HELP = evaluate.HELP
EXAMPLES = evaluate.EXAMPLES
add_arguments = evaluate.add_arguments

_MAX_BATCH = 8


class _Compiling:
    """Compiles what is served with OpenVINO."""

    def __init__(self, bundle: Bundle, cache_dir: Path) -> None:
        self._engine = OpenVinoEngine(
            bundle, threads=available_cores(), max_batch=_MAX_BATCH, cache_dir=cache_dir
        )

    def __call__(self, resolution: int, mode: Mode, precision: Precision) -> Run | None:
        """Make a network ready; None if this CPU does not compute its precision."""
        if precision not in self._engine.precisions:
            return None
        network = self._engine.build(OperatingPoint(resolution, mode, precision))
        network.finish()
        return network.run


def run(args: argparse.Namespace) -> int:
    """Measure, show, and write what was asked for; by torch where OpenVINO does not run."""
    with tempfile.TemporaryDirectory(prefix="san-evaluate-") as folder:

        def make_engine(bundle: Bundle) -> Engine | None:
            try:
                return _Compiling(bundle, Path(folder))
            except EngineUnavailableError:
                return None

        return evaluate.run(args, make_engine)
