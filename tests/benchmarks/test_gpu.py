"""The smoke test for GPU hosts, tried on a device that is a CPU."""

import numpy as np
import pytest
import torch

from benchmarks import gpu
from san_core.frontier import OperatingPoint
from service.engines.torch_engine import TorchEngine
from tests.service.engines.graph_device import NotedDevice
from tests.service.engines.test_openvino_engine import make_bundle

POINTS = [OperatingPoint(64), OperatingPoint(48)]


def engine(graphs=None):
    return TorchEngine(make_bundle("resnet18"), threads=1, max_batch=2, device="cpu", graphs=graphs)


class Off:
    """Another network, wrong in the way that `wrong` makes its logits."""

    def __init__(self, network, wrong):
        self._network, self._wrong = network, wrong
        self.point = getattr(network, "point", None)

    def run(self, batch):
        return self._wrong(self._network.run(batch))


def test_half_precision_passes(capsys):
    reference = engine()
    sizes = [1, 2]
    for point in POINTS:
        network = engine(NotedDevice(torch.float16)).build(point)
        found = gpu.compare(network, reference.build(point), sizes)
        assert [c.batch for c in found] == sizes
        assert all(c.right for c in found)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda logits: logits * 1.05,
        lambda logits: logits[::-1],
        lambda logits: np.roll(logits, 1, axis=1),
        lambda logits: np.full_like(logits, np.nan),
    ],
)
def test_what_is_wrong_is_found(wrong):
    network = engine().build(POINTS[0])
    assert not all(c.right for c in gpu.compare(Off(network, wrong), network, [1, 2]))


def test_answers_that_change_while_others_are_built_are_found():
    class Shared:
        """Every network writes its result where the first one's is."""

        def __init__(self):
            self.built = 0

        def build(self, point):
            self.built += 1
            network = Off(None, lambda _: np.full((1, 2), float(self.built), np.float32))
            network.run = lambda _: network._wrong(None)
            return network

    changed = gpu.steady(Shared(), POINTS, max_batch=1, rounds=50_000)
    assert changed > 0


def test_all_of_it(capsys):
    class Unlocked(NotedDevice):
        """Building beside running, as CUDA does; the notes are not needed here."""

        def _inside(self, where):
            yield

        def finish(self):
            pass

        def capture(self, work):
            work()
            return work

        def pinned(self, elements, dtype):
            return torch.zeros(elements, dtype=dtype)

    assert gpu.check(engine(Unlocked()), engine(), POINTS, max_batch=2, seconds=0.01)
    told = capsys.readouterr().out
    assert "64 proxy" in told
    assert "changed while others were built: 0" in told
    assert "graphs: for batches of 1, 2" in told


def test_a_host_without_a_gpu_is_told_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["gpu"])
    monkeypatch.setattr(gpu, "chosen", lambda _: make_bundle("resnet18"))
    assert gpu.main() == 2
    assert "no CUDA device" in capsys.readouterr().err
