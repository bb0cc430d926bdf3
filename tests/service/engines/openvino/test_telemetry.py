"""Nothing leaves this machine: OpenVINO is imported without its reports to its maker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
SCRIPT = """
import socket, sys, time, urllib.request

def refuse(*args, **kwargs):
    print("CONNECTS", args[1:], flush=True)
    raise OSError("not from here")

socket.socket.connect = refuse
urllib.request.urlopen = refuse
import service.engines.openvino.engine
import openvino
openvino.Core()
time.sleep(0.5)  # what reports would do so in a thread
assert not [name for name in sys.modules if name.startswith("openvino_telemetry.")]
print("imported", openvino.__version__)
"""


def test_importing_openvino_connects_nowhere_and_writes_nothing(tmp_path):
    outside = {k: v for k, v in os.environ.items() if k not in ("CI", "HOME")}
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=outside | {"HOME": str(home), "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "imported" in done.stdout
    assert "CONNECTS" not in done.stdout + done.stderr
    assert list(home.rglob("*")) == []
