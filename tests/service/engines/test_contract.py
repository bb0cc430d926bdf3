"""What every engine owes the service, whatever it is made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from san_core.bundle import Bundle
from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from san_core.preprocessing import Preprocessing
from service.engines.base import Engine
from service.engines.cuda.engine import CudaEngine
from service.engines.torch_engine import TorchEngine
from service.errors import NotFiniteError
from tests.service.engines.cuda.graph_device import DeferringDevice, NotedDevice
from tests.service.engines.openvino.test_engine import (
    CLASSES,
    images,
    make_bundle,
    make_engine,
    reference,
    relative_error,
)

MOST = 4
POINT = OperatingPoint(57, Mode.DATA_FREE)

Make = Callable[[Bundle], Engine]


def torch_on_a_cpu(bundle: Bundle) -> Engine:
    return TorchEngine(bundle, threads=1, max_batch=MOST, device="cpu")


def graphs(bundle: Bundle) -> Engine:
    return CudaEngine(bundle, threads=1, max_batch=MOST, device="cuda", graphs=NotedDevice())


def graphs_in_half(bundle: Bundle) -> Engine:
    device = DeferringDevice(torch.float16)
    return CudaEngine(bundle, threads=1, max_batch=MOST, device="cuda", graphs=device)


@pytest.fixture(
    params=[
        pytest.param("openvino", id="openvino"),
        pytest.param(torch_on_a_cpu, id="torch"),
        pytest.param(graphs, id="graphs"),
        pytest.param(graphs_in_half, id="graphs-half"),
    ]
)
def make(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Make:
    if request.param == "openvino":
        cache = tmp_path_factory.getbasetemp() / "templates"
        return lambda bundle: make_engine(bundle, Path(cache), MOST)
    return request.param


@pytest.fixture
def close(request: pytest.FixtureRequest) -> float:
    """How far logits may be from the reference: half precision has 11 bits, but layers add up."""
    return 2e-2 if "half" in request.node.name else 1e-4


def test_bytes_are_normalised_as_the_bundle_says(make: Make, close: float) -> None:
    bundle = make_bundle("mobilenet_v2")
    network = make(make_bundle("mobilenet_v2")).build(POINT)
    batch = images(3, 57)
    assert relative_error(network.run(batch), reference(bundle, POINT, batch)) < close
    network.finish()
    assert network.point == POINT
    assert network.memory_bytes > 0
    for n in (1, 3, 4):
        batch = images(n, 57)
        assert batch.dtype == np.uint8
        found = network.run(batch)
        assert found.dtype == np.float32
        assert relative_error(found, reference(bundle, POINT, batch)) < close


def test_the_images_stay_as_they_are_and_the_result_is_the_callers(make: Make) -> None:
    network = make(make_bundle("resnet18")).build(POINT)
    batch = images(2, 57)
    given = batch.copy()
    first = network.run(batch)
    kept = first.copy()
    network.run(images(4, 57))
    np.testing.assert_array_equal(batch, given)
    np.testing.assert_array_equal(first, kept)


def test_it_does_not_matter_how_images_lie_in_memory(make: Make) -> None:
    """A turned or mirrored image is a view of another one."""
    network = make(make_bundle("resnet18")).build(POINT)
    batch = images(1, 57)
    for view in (batch[:, ::-1], batch[:, :, ::-1], batch.transpose(0, 2, 1, 3)[:, :, ::-1]):
        expected = network.run(np.ascontiguousarray(view))
        np.testing.assert_array_equal(network.run(view), expected)


def test_a_read_only_image_is_taken(make: Make) -> None:
    """As Pillow gives them."""
    batch = images(1, 57)
    network = make(make_bundle("resnet18")).build(POINT)
    expected = network.run(batch)
    batch.flags.writeable = False
    np.testing.assert_array_equal(network.run(batch), expected)


def test_another_bundles_preprocessing_is_its_own(make: Make, close: float) -> None:
    plain, other = make_bundle("resnet18"), make_bundle("resnet18")
    changed = Preprocessing(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    other.manifest = other.manifest.model_copy(update={"preprocessing": changed})
    batch = images(2, 57)
    make(plain).build(POINT)  # whatever it leaves on disk
    found = make(other).build(POINT).run(batch)
    assert relative_error(found, reference(other, POINT, batch)) < close
    assert relative_error(found, reference(plain, POINT, batch)) > close


def test_what_is_not_a_number_is_never_an_answer(make: Make) -> None:
    bundle = make_bundle("resnet18")
    with torch.no_grad():
        dict(bundle.network.named_parameters())[_head(bundle)].fill_(float("nan"))
    with pytest.raises(NotFiniteError, match="not a number"):
        make(bundle).build(POINT).run(images(2, 57))


def _head(bundle: Bundle) -> str:
    """The name of a tensor that every logit depends on and that no resolution generates."""
    return next(n for n, t in bundle.network.named_parameters() if t.shape == (CLASSES,))
