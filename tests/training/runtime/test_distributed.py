import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from san_core.network.network_config import NetworkConfig
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from san_core.preprocessing import Preprocessing
from tests.training.conftest import ARCHITECTURE, CLASSES, TinyCnn
from training.config import Recipe
from training.data.folder import index_training
from training.evaluation.probes import Probe, measure
from training.loop.objective import MixedScale
from training.run import Task, mixed_scale, train
from training.runtime.distributed import Group

# Trains twice, with statistics of its own for every batch and with frozen ones.
WORKER = """
import sys
from pathlib import Path
from tests.training.runtime.test_distributed import train_both
from training.runtime.distributed import joined_group

with joined_group("cpu") as group:
    train_both(Path(sys.argv[1]), Path(sys.argv[2]), group, {"own": (3, 1), "frozen": (3, 1)})
"""


class Frozen(MixedScale):
    """Mixed-scale training with the statistics of batch norm left as they are."""

    def train(self) -> None:
        self.network.eval()


def train_both(data: Path, out: Path, group: Group, batches: dict[str, tuple[int, int]]) -> None:
    """Train for two epochs each and keep all tensors and the validation's counts."""
    training, validation = index_training(data)
    assert validation is not None
    for statistics, (size, accumulate) in batches.items():
        recipe = Recipe(
            resolutions=(48, 32),
            epochs=2,
            batch_size=size,
            accumulate=accumulate,
            learning_rate=0.05,
            workers=0,
        )
        torch.manual_seed(group.rank)  # the main process's weights must win
        network = ScaleAdaptiveNetwork(NetworkConfig("tiny", (48, 32), 3), TinyCnn())
        make = (lambda n, _: Frozen(n)) if statistics == "frozen" else mixed_scale
        task = Task(network, CLASSES, Preprocessing(), training, None, make)
        folder = out / statistics
        assert train(task, recipe, group, folder, quiet=True)
        tensors = {f"parameter/{k}": v.detach() for k, v in network.named_parameters()}
        tensors |= {f"buffer/{k}": v for k, v in network.named_buffers()}
        found = measure(network, [Probe(32, 32)], validation, Preprocessing(), group, workers=0)
        (score,) = found.scores.values()
        tensors["score"] = torch.tensor([score.n, score.hits1, score.hits5])
        kept = {k: v.clone() for k, v in tensors.items()}
        save_file(kept, folder / f"rank{group.rank}.safetensors")


def start(arguments: list[str], processes: int) -> None:
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone"]
        launcher += [f"--nproc_per_node={processes}"]
    done = subprocess.run(
        [*launcher, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_two_processes_equal_one_with_twice_the_images(
    data: Path, tmp_path: Path, alone: Group
) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    start([str(script), str(data), str(tmp_path / "two")], 2)
    # With frozen statistics a batch of 2b is the same. Else a batch of 2b has other statistics than
    # two of b, and the one process accumulates two batches of b: all parameters agree, and only the
    # moving averages, which it updates twice per step, do not.
    train_both(data, tmp_path / "one", alone, {"own": (3, 2), "frozen": (6, 1)})
    for statistics in ("own", "frozen"):
        first, second, one = (
            load_file(tmp_path / many / statistics / f"rank{rank}.safetensors")
            for many, rank in (("two", 0), ("two", 1), ("one", 0))
        )
        for name, value in first.items():  # processes never drift apart, statistics included
            assert torch.equal(value, second[name]), name
        agreeing = [name for name in one if name.startswith("parameter/")]
        assert len(agreeing) == 8  # W, b, two of each of two batch norms, the head
        for name in agreeing:
            torch.testing.assert_close(first[name], one[name], atol=1e-5, rtol=1e-5)
        assert int(first["score"][0]) == 15  # each validation image once
    assert torch.equal(first["score"], one["score"])


def test_torchrun_takes_the_options_of_san_train(data: Path, tmp_path: Path) -> None:
    line = f"--arch {ARCHITECTURE} --resolutions 48,32 --epochs 1 --batch-size 6 --workers 0"
    bundle = tmp_path / "b.safetensors"
    options = ["--data", str(data), "--output", str(tmp_path / "run"), "--export", str(bundle)]
    start(["-m", "san_cli", "train", *options, *line.split()], 2)
    assert bundle.is_file()
