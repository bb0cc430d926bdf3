"""The CUDA path without CUDA: what is captured when, padding, slots, ownership, falling back."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest
import torch

from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from service.engines.base import traits
from service.engines.cuda.engine import CudaEngine
from service.engines.cuda.graphs import GraphedNetwork
from tests.service.engines.cuda.graph_device import DeferringDevice, NotedDevice
from tests.service.engines.openvino.test_engine import (
    images,
    make_bundle,
    reference,
    relative_error,
)

MOST = 8
POINT = OperatingPoint(64, Mode.PROXY)


def make_engine(device: NotedDevice, bundle=None) -> CudaEngine:
    return CudaEngine(
        bundle or make_bundle("resnet18"), threads=1, max_batch=MOST, device="cuda", graphs=device
    )


def finished(engine: CudaEngine, point: OperatingPoint = POINT) -> GraphedNetwork:
    network = engine.build(point)
    network.finish()
    return network


def noted(device: NotedDevice, what: str) -> list[str]:
    return [note for note in device.notes if note.startswith(what)]


@pytest.mark.parametrize("architecture", ["resnet18", "mobilenet_v2"])
def test_every_batch_gets_what_the_reference_computes(architecture):
    bundle = make_bundle(architecture)
    for point in (POINT, OperatingPoint(57, Mode.DATA_FREE)):
        network = finished(make_engine(NotedDevice(), make_bundle(architecture)), point)
        for n in (1, 3, 8, 2, 5):
            batch = images(n, point.resolution)
            found = network.run(batch)
            assert found.shape == (n, 7)
            assert found.dtype == np.float32
            assert relative_error(found, reference(bundle, point, batch)) < 1e-4


def test_all_is_captured_when_the_network_is_built_and_nothing_later():
    device = NotedDevice()
    network = finished(make_engine(device), POINT)
    assert network.body.captured == (1, 2, 4, 8)
    assert noted(device, "capture") == [f"capture {number}" for number in range(4)]
    network.run(images(1, 64))  # its weights are put in place
    device.notes.clear()
    # numbers in the order of capture: one image, then the largest first
    for n, number in ((1, 0), (2, 3), (3, 2), (4, 2), (5, 1), (8, 1)):
        network.run(images(n, 64))
        # the smallest graph that holds the batch, then the copy out, waited for; no allocation
        assert device.notes == ["upload", "copy", f"replay {number}", "copy", "wait"]
        device.notes.clear()


def test_the_largest_batch_is_captured_first():
    """After one image, for the first answer; the smaller ones then fit into what it took."""
    sizes = []

    class Sized(NotedDevice):
        def capture(self, work, warm_up):
            sizes.append(work.args[0])
            return super().capture(work, warm_up)

    finished(make_engine(Sized()), POINT)
    assert sizes == [1, 8, 4, 2]


def test_a_cold_point_answers_once_one_image_is_captured_and_batches_are_split_until_then():
    device, bundle = NotedDevice(), make_bundle("resnet18")
    engine = make_engine(device)
    network = engine.build(POINT)
    assert network.body.captured == (1,)
    batch = images(3, 64)
    assert relative_error(network.run(batch), reference(bundle, POINT, batch)) < 1e-4
    assert engine.facts.replays == {1: 3}
    with torch.inference_mode():
        network.body.output.fill_(7.0)
    network.finish()
    assert network.body.captured == (1, 2, 4, 8)
    assert (network.body.output == 7.0).all()  # a batch that runs meanwhile is not disturbed
    network.finish()
    assert engine.facts.captures == 4


def test_rows_that_pad_a_batch_touch_no_other():
    engine = make_engine(NotedDevice())
    network = finished(engine)
    batch = images(3, 64)
    clean = network.run(batch)
    network.run(np.full((8, 64, 64, 3), 255, np.uint8))
    np.testing.assert_array_equal(network.run(batch), clean)
    assert engine.facts.padding == 2
    assert engine.facts.images == 14
    assert engine.facts.replays == {4: 2, 8: 1}


def test_nothing_is_read_before_it_is_there():
    """On a device that does nothing before it is waited for, answers are the same."""
    batches = [images(n, 64) for n in (3, 8, 1)]
    plain = finished(make_engine(NotedDevice()), POINT)
    deferred = finished(make_engine(DeferringDevice()), POINT)
    for batch in batches:
        np.testing.assert_array_equal(deferred.run(batch), plain.run(batch))


def test_two_batches_are_in_flight():
    """The second is asked for while the first is waited for, and a third has to wait."""
    entered, go = threading.Semaphore(0), threading.Event()

    class Slow(DeferringDevice):
        def mark(self):
            wait = super().mark()

            def slowly():
                entered.release()
                assert go.wait(30)
                with self.lock:
                    wait()

            return slowly

    device = Slow()
    device.lock = threading.Lock()
    engine = make_engine(device)
    assert traits(engine).in_flight == 2
    network = finished(engine)
    batches = [images(n, 64) for n in (1, 2, 3)]
    found = {}

    def run(place):
        found[place] = network.run(batches[place])

    threads = [threading.Thread(target=run, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    assert entered.acquire(timeout=30)
    assert entered.acquire(timeout=30)
    assert len(noted(device, "upload")) == 2
    assert not entered.acquire(timeout=0.2)
    go.set()
    for thread in threads:
        thread.join(30)
    plain = finished(make_engine(NotedDevice()), POINT)
    for place, batch in enumerate(batches):
        np.testing.assert_array_equal(found[place], plain.run(batch))


def test_what_cannot_be_captured_runs_eagerly_and_says_why(caplog):
    device = NotedDevice(most_captures=0)
    bundle = make_bundle("resnet18")
    engine = make_engine(device, make_bundle("resnet18"))
    assert engine.describe()["graphs"] == "for batches of 1, 2, 4, 8"
    with caplog.at_level(logging.WARNING):
        network = finished(engine)
    assert network.body.captured == ()
    reason = engine.describe()["graphs"]
    assert "operation not permitted" in reason
    assert "\n" not in reason
    assert reason in caplog.text
    for n in (1, 2, 3, 8):
        batch = images(n, 64)
        assert relative_error(network.run(batch), reference(bundle, POINT, batch)) < 1e-4
    assert not noted(device, "replay")


def test_an_error_of_ours_is_not_taken_for_one_of_capture():
    device = NotedDevice(most_captures=0)
    device.error = TypeError("a bug")
    with pytest.raises(TypeError, match="a bug"):
        finished(make_engine(device), POINT)
