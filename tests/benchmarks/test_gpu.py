"""The smoke test for GPU hosts, tried on a device that is a CPU."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks import gpu
from san_core.frontier import OperatingPoint
from service.engines.cuda.engine import CudaEngine
from service.engines.torch_engine import TorchEngine
from tests.service.conftest import write_bundle
from tests.service.engines.cuda.graph_device import FailingDevice, NotedDevice
from tests.service.engines.openvino.test_engine import make_bundle

POINTS = [OperatingPoint(64), OperatingPoint(48)]


def engine(graphs=None):
    made = CudaEngine if graphs else TorchEngine
    options = {"graphs": graphs} if graphs else {}
    return made(make_bundle("resnet18"), threads=1, max_batch=2, device="cpu", **options)


class Off:
    """Another network, wrong in the way that `wrong` makes its logits."""

    def __init__(self, network, wrong):
        self._network, self._wrong = network, wrong
        self.point = getattr(network, "point", None)

    def run(self, batch):
        return self._wrong(self._network.run(batch))

    def keep(self):
        pass

    def finish(self):
        pass


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

    assert gpu.steady(Shared(), POINTS, max_batch=1, rounds=3) > 0


def test_networks_that_cannot_be_built_beside_prove_nothing():
    device = FailingDevice()
    made = engine(device)

    class Second:
        def build(self, point):
            network = made.build(point)
            device.fails["building"] = [RuntimeError("no second one")]
            return network

    with pytest.raises(RuntimeError, match="no second one"):
        gpu.steady(Second(), POINTS, max_batch=2, rounds=1)


class Unlocked(FailingDevice):
    """Building beside running, as CUDA does; the notes are not needed here."""

    def _inside(self, where):
        self.where = "running"
        yield

    def capture(self, work, warm_up):
        self._fail("capture")
        warm_up()
        return work

    def pinned(self, elements, dtype):
        return torch.zeros(elements, dtype=dtype)


def test_the_answers(capsys):
    assert gpu.check(engine(Unlocked()), engine(), POINTS, max_batch=2, seconds=0.01)
    told = capsys.readouterr().out
    assert "64 proxy" in told
    assert "changed while others were built: 0" in told
    assert "graphs: for batches of 1, 2" in told


def test_an_engine_that_runs_out_says_so_and_serves_again():
    device = FailingDevice()

    def limit(share):
        full = torch.OutOfMemoryError("CUDA out of memory")
        device.fails = {"capture": [full]} if share < 1 else {}

    assert gpu.runs_out(lambda: engine(device), POINTS[0], limit)
    assert not gpu.runs_out(lambda: engine(device), POINTS[0], lambda _: None)


def test_what_each_reload_holds_is_told():
    assert gpu.reloads(lambda: engine(NotedDevice()), POINTS[0], times=2) == [7_000_000] * 2


@pytest.mark.parametrize("evictions", [3.0, 0.0])
def test_all_of_it(monkeypatch, capsys, evictions):
    """One step that is not right is enough."""
    device = Unlocked()

    def limit(share, _):
        full = torch.OutOfMemoryError("CUDA out of memory")
        device.fails = {"capture": [full]} if share < 1 else {}

    def make(bundle, **settings):
        return CudaEngine(bundle, graphs=device, **settings)

    seen = gpu.OverHttp("cuda:0", Counter({200: 2}), {64: {3}}, evictions)
    monkeypatch.setattr("sys.argv", ["gpu", "--quick", "--max-batch", "2"])
    monkeypatch.setattr(gpu, "chosen", lambda _: make_bundle("resnet18"))
    monkeypatch.setattr(gpu, "CudaEngine", make)
    monkeypatch.setattr(gpu, "check", lambda *_: True)
    monkeypatch.setattr(gpu, "over_http", lambda *_: seen)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", limit)
    assert gpu.main() == (0 if evictions else 1)
    told = capsys.readouterr().out
    for step in ("answers", "reloads", "out of memory"):
        assert f"{step}: right" in told
    assert f"HTTP, evictions, reload: {'' if evictions else 'NOT '}right" in told


def test_a_host_without_a_gpu_is_told_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["gpu"])
    monkeypatch.setattr(gpu, "chosen", lambda _: make_bundle("resnet18"))
    assert gpu.main() == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_over_http_networks_come_and_go_and_answers_stay(tmp_path):
    bundle = write_bundle(tmp_path / "tiny.safetensors")
    seen = gpu.over_http(bundle, "cpu", 24)
    assert seen.device == "cpu"
    assert seen.statuses == {200: 24 + 1}  # the reload is one more
    assert len(seen.classes) > 1
    assert seen.right
    seen.statuses[503] += 1
    assert not seen.right


def test_a_frontier_that_moves_while_clients_ask_is_followed(tmp_path, monkeypatch):
    """Who goes on pinning what left it is refused, as any client is."""
    moved = []

    class Moves(gpu.OurService):
        def points(self):
            found = super().points()
            if not moved:
                found = [replace(point, frontier=not point.frontier) for point in found]
            moved.append(True)
            return found

    monkeypatch.setattr(gpu, "OurService", Moves)
    bundle = write_bundle(tmp_path / "tiny.safetensors")
    assert gpu.over_http(bundle, "cpu", 48).statuses == {200: 48 + 1}


def test_what_went_wrong_over_http_is_found():
    fine = {"statuses": Counter({200: 2}), "classes": {64: {3}}, "evictions": 1.0}
    assert gpu.OverHttp(**fine).right
    assert not gpu.OverHttp(**{**fine, "classes": {64: {3, 4}}}).right
    assert not gpu.OverHttp(**{**fine, "evictions": 0.0}).right


def test_half_of_the_images_are_pieces_of_a_photograph():
    def grain(image):
        return np.abs(np.diff(image.astype(float), axis=0)).mean()

    for place, image in enumerate(gpu.images(4, 64)):
        assert (grain(image) < 30) == bool(place % 2)
    np.testing.assert_array_equal(gpu.images(4, 64), gpu.images(4, 64))
