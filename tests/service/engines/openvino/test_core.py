"""Engines come and go, as with every bundle that is deployed; signals are still handled."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
SCRIPT = """
import gc, signal
from pathlib import Path
from san_core.bundle import read
from service.engines.openvino.cpu_probe import CpuDecision
from service.engines.openvino.engine import OpenVinoEngine

FLOAT32 = CpuDecision(isa="", precision="f32", int8=True, saturates=True, reason="given")
HERE = Path()

def make():
    return OpenVinoEngine(
        read(), threads=1, max_batch=1, device="cpu", decision=FLOAT32, cache_dir=HERE
    )

signal.signal(signal.SIGUSR1, lambda *_: print("handled"))
serving = make()
for _ in range(3):
    deployed = make()
    serving = deployed
    del deployed
    gc.collect()
del serving
gc.collect()
signal.raise_signal(signal.SIGUSR1)
"""


def test_a_signal_is_handled_after_engines_were_freed(tmp_path):
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", SCRIPT],
        env={"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr
