import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.training.conftest import ARCHITECTURE

# Two processes of batch b and one that accumulates two batches of b take the same images, and each
# batch is normalised by its own statistics in both. So all parameters agree after some steps; the
# moving averages of batch norm are updated once and twice per step and do not.
WORKER = """
import sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from san_core.preprocessing import Preprocessing
from tests.training.conftest import CLASSES, TinyCnn
from san_core.scale_adaptive_network import NetworkConfig, ScaleAdaptiveNetwork
from training import run
from training.config import make_recipe
from training.data.folder import index_training
from training.distributed import joined_group
from training.evaluate import Probe, measure
from training.objective import MixedScale

class Frozen(MixedScale):
    def train(self):
        self.network.eval()

data, out, batch, accumulate, frozen = sys.argv[1:]
recipe = make_recipe(dict(
    resolutions=(48, 32), epochs=2, batch_size=int(batch), accumulate=int(accumulate),
    learning_rate=0.05, workers=0, momentum=0.9, device="cpu",
))
with joined_group("cpu") as group:
    torch.manual_seed(group.rank)  # the main process's weights must win
    network = ScaleAdaptiveNetwork(NetworkConfig("tiny", (48, 32), 3), TinyCnn())
    training, validation = index_training(Path(data))
    objective = (lambda n, r: Frozen(n)) if frozen == "frozen" else run.mixed_scale
    task = run.Task(network, CLASSES, Preprocessing(), training, None, objective)
    assert run.train(task, recipe, group, Path(out), quiet=True)
    assert all(p.requires_grad for p in network.parameters())
    tensors = {f"p/{k}": v.detach() for k, v in network.named_parameters()}
    tensors |= {f"b/{k}": v for k, v in network.named_buffers()}
    found = measure(network, [Probe(32, 32)], validation, Preprocessing(), group, workers=0)
    tensors["scores"] = torch.tensor([[s.n, s.hits1, s.hits5] for s in found.scores.values()])
    save_file({k: v.clone() for k, v in tensors.items()}, f"{out}/rank{group.rank}.safetensors")
"""


def start(arguments: list[str], processes: int) -> None:
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone"]
        launcher += [f"--nproc_per_node={processes}"]
    done = subprocess.run(
        [*launcher, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def parameters(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: t for name, t in tensors.items() if name.startswith("p/")}


@pytest.mark.parametrize("statistics", ["own", "frozen"])
def test_two_processes_equal_one_with_twice_the_images(
    data: Path, tmp_path: Path, statistics: str
) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    # With frozen statistics a batch of 2b is the same; else two accumulated batches of b are.
    one = ["6", "1"] if statistics == "frozen" else ["3", "2"]
    start([str(script), str(data), str(tmp_path / "two"), "3", "1", statistics], 2)
    start([str(script), str(data), str(tmp_path / "one"), *one, statistics], 1)
    first, second = (load_file(tmp_path / "two" / f"rank{rank}.safetensors") for rank in (0, 1))
    alone = load_file(tmp_path / "one" / "rank0.safetensors")

    for name, value in first.items():  # processes never drift apart, statistics included
        assert torch.equal(value, second[name]), name
    for name, value in parameters(alone).items():
        torch.testing.assert_close(first[name], value, atol=1e-5, rtol=1e-5)
    assert int(first["scores"][0, 0]) == 15  # each validation image once
    if statistics == "frozen":
        assert torch.equal(first["scores"], alone["scores"])


def test_torchrun_takes_the_options_of_san_train(data: Path, tmp_path: Path) -> None:
    line = f"--arch {ARCHITECTURE} --resolutions 48,32 --epochs 1 --batch-size 6 --workers 0"
    bundle = tmp_path / "b.safetensors"
    options = ["--data", str(data), "--output", str(tmp_path / "run"), "--export", str(bundle)]
    start(["-m", "training", "train", *options, *line.split()], 2)
    assert bundle.is_file()
