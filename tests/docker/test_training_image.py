"""The training image: built by compose, and trains inside."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.docker.conftest import BASE
from tests.docker.containers import ROOT, STATE, Engine, Stack

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def training(engine: Engine):
    base = engine.provide(BASE, "base")
    assert base
    # Not below pytest's folder, which only this user may enter: another one reads them inside.
    images = Path(tempfile.mkdtemp(dir=STATE.parent))
    draw = [sys.executable, ROOT / "examples" / "draw_shapes.py", images, "--images", "8"]
    subprocess.run(draw, check=True, capture_output=True)
    images.chmod(0o755)
    stack = Stack(engine, {"SAN_IMAGES": str(images)}, (), images={BASE: base})
    try:
        stack.compose("--profile", "training", "build", "training", timeout=3600)
        yield stack
    finally:
        stack.compose("--profile", "training", "down", "-v", check=False)
        shutil.rmtree(images)


def run(stack: Stack, *arguments: str) -> str:
    command = ("--profile", "training", "run", "--rm", "-T", "training", *arguments)
    return stack.compose(*command, timeout=600)


def test_it_says_how_to_train(training: Stack):
    assert "--resolutions" in run(training, "train", "--help")


def test_it_trains_and_describes_what_it_trained(training: Stack):
    run(
        training, "train", "--data", "/images", "--arch", "resnet18", "--resolutions", "48,32",
        "--epochs", "1", "--batch-size", "8", "--learning-rate", "0.01", "--output", "/runs/first",
        "--export", "/runs/first.safetensors",
    )  # fmt: skip
    assert "resnet18" in run(training, "describe", "/runs/first.safetensors")
