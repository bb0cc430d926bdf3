"""Batches in halves: every image is run once, in its place, and a failure is nobody's end."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from san_core.frontier import OperatingPoint
from service.engines.openvino_network import Halves, OpenVinoNetwork


class Request:
    """Stands for a compiled network: its logits are the image's first number."""

    def __init__(self, meet: threading.Barrier | None = None) -> None:
        self.seen: list[float] = []
        self.fails = False
        self._meet = meet
        self._value = 0.0

    def set_input_tensor(self, tensor):
        self._value = float(tensor.data[0, 0, 0, 0])

    def infer(self):
        if self._meet is not None:
            self._meet.wait(10)
        if self.fails:
            raise RuntimeError("out of memory")
        self.seen.append(self._value)

    def get_output_tensor(self):
        return SimpleNamespace(data=np.array([[self._value]], np.float32))


def numbered(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.float32).reshape(n, 1, 1, 1).repeat(3, axis=3)


@pytest.fixture
def second():
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8])
def test_every_image_is_run_once_in_its_place(n, second):
    halves, single = (Request(), Request()), Request()
    network = OpenVinoNetwork(OperatingPoint(1), 0, single, Halves(halves, second))
    assert network.run(numbered(n)).ravel().tolist() == list(range(n))
    assert sorted(halves[0].seen + halves[1].seen) == list(range(n // 2 * 2))
    assert single.seen == ([n - 1] if n % 2 else [])


def test_two_images_run_at_the_same_time(second):
    meet = threading.Barrier(2)  # broken, and an error, unless both are inside
    Halves((Request(meet), Request(meet)), second).run(numbered(4))
    assert not meet.broken


@pytest.mark.parametrize("broken", [0, 1])
def test_a_failed_half_is_told_and_the_next_batch_runs(broken, second):
    halves = (Request(), Request())
    runs = Halves(halves, second)
    halves[broken].fails = True
    meet = threading.Barrier(2)
    for request in halves:
        request._meet = meet
    with pytest.raises(RuntimeError, match="out of memory"):
        runs.run(numbered(2))
    halves[broken].fails = False
    assert runs.run(numbered(2)).ravel().tolist() == [0, 1]


def test_settling_leaves_the_second_thread_to_who_is_served(second):
    halves, single = (Request(), Request()), Request()
    network = OpenVinoNetwork(OperatingPoint(1), 0, single, Halves(halves, second))
    second.shutdown()
    network.settle(8)
    assert single.seen == halves[0].seen == halves[1].seen == [0]
