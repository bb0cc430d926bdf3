import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.training.conftest import ARCHITECTURE
from training.loop import checkpoint

OPTIONS = (
    f"--arch {ARCHITECTURE} --resolutions 48,32 --epochs 3 --batch-size 4 --workers 1 "
    "--checkpoint-steps 2 --validate-every 0 --learning-rate 0.02 --quiet"
).split()


def start(data: Path, run: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "san_cli", "train", "--data", str(data)]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    return subprocess.Popen([*command, "--output", str(run), *OPTIONS, *more], env=environment)


def position(run: Path) -> int:
    path = run / checkpoint.FILE_NAME
    if not path.is_file():
        return 0
    at: dict[str, int] = checkpoint.read_state(path)["position"]
    return at["epoch"] * 9 + at["step"]


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    run = tmp_path_factory.mktemp("whole")
    assert start(data, run).wait() == 0
    return load_file(run / checkpoint.FILE_NAME)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)]
)
def test_killed_in_mid_epoch_and_resumed_is_the_same_run(
    data: Path, tmp_path: Path, whole: dict[str, torch.Tensor], number: signal.Signals, code: int
) -> None:
    process = start(data, tmp_path)
    try:
        while position(tmp_path) < 11:  # the second epoch has begun
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(number)
        assert process.wait() == code
    finally:
        process.kill()
    reached = position(tmp_path)
    assert 11 <= reached < 27

    assert start(data, tmp_path, "--resume").wait() == 0
    resumed = load_file(tmp_path / checkpoint.FILE_NAME)
    assert resumed.keys() == whole.keys()
    assert [name for name, t in whole.items() if not torch.equal(t, resumed[name])] == []
