"""Int8 in OpenVINO computes what the simulation of int8 computes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from san_core.bundle import Bundle
from san_core.frontier import OperatingPoint
from san_core.main_network.folding import FoldedArchitecture
from san_core.main_network.quantization import (
    Int8Simulation,
    Range,
    quantisable,
    ranges_for,
    to_extras,
)
from san_core.mode import Mode
from service.engines.openvino.cpu_probe import CpuDecision
from service.engines.openvino.engine import OpenVinoEngine
from service.errors import EngineUnavailableError
from tests.service.engines.openvino.test_engine import (
    make_bundle,
    make_engine,
    reference,
    relative_error,
)


def images(n: int, side: int) -> np.ndarray:
    """The whole range has 255 steps, as many as int8: every value could lie between two levels.

    With 244 steps few of them do.
    """
    return np.random.default_rng(n).integers(7, 252, (n, side, side, 3), np.uint8)


def observed(bundle: Bundle, resolution: int, batch: np.ndarray) -> dict[str, Range]:
    """The ranges that this batch fills."""
    folded = FoldedArchitecture(bundle.network.skeleton)
    tensors = folded.fold(bundle.network.generate(resolution))
    ranges = {}
    for name, layer in quantisable(folded.module).items():

        def note(_: object, inputs: tuple[torch.Tensor], name: str = name) -> None:
            values = inputs[0]
            mean = values.transpose(0, 1).flatten(1).mean(1).numpy()
            ranges[name] = Range(float(values.abs().max()), bool(values.min() < 0), mean)

        layer.register_forward_pre_hook(note)
    nchw = torch.from_numpy(bundle.manifest.preprocessing.normalise(batch)).permute(0, 3, 1, 2)
    torch.func.functional_call(folded.module, tensors, (nchw,))
    return ranges


def quantised_bundle(architecture: str) -> Bundle:
    bundle = make_bundle(architecture)
    for resolution in bundle.network.resolutions:
        ranges = observed(bundle, resolution, images(4, resolution))
        bundle.extras |= to_extras(resolution, ranges)
    return bundle


def simulated(bundle: Bundle, point: OperatingPoint, batch: np.ndarray) -> np.ndarray:
    folded = FoldedArchitecture(bundle.network.skeleton)
    tensors = folded.fold(bundle.network.generate(point.resolution, point.mode))
    ranges = ranges_for(bundle.network, bundle.extras, point.resolution, point.mode)
    nchw = torch.from_numpy(bundle.manifest.preprocessing.normalise(batch)).permute(0, 3, 1, 2)
    with torch.no_grad():
        return Int8Simulation(folded)(nchw, tensors, ranges).numpy()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("architecture", ["resnet18", "mobilenet_v2", "timm:tf_efficientnet_lite0"])
def test_computes_what_the_simulation_computes(architecture: str, cache: Path) -> None:
    bundle = quantised_bundle(architecture)
    engine = make_engine(bundle, cache)
    assert engine.precisions == ("float", "int8")
    point = OperatingPoint(57, Mode.DATA_FREE, "int8")
    network = engine.build(point)
    batch = images(12, 57)
    found = np.concatenate([network.run(part) for part in np.split(batch, [1, 4, 8])])
    exact = reference(bundle, point, batch)
    expected = simulated(bundle, point, batch)
    rounding = relative_error(expected, exact)
    assert 1e-4 < rounding < 1.0
    apart = [relative_error(f, e) for f, e in zip(found, expected, strict=True)]
    # The same up to the last digits; but a value between two levels may then go either way, and
    # what follows with it, as far as rounding goes.
    assert min(apart) < 1e-3
    assert max(apart) < rounding


def test_int8_weights_take_less_memory(cache: Path) -> None:
    engine = make_engine(quantised_bundle("resnet18"), cache)
    whole = engine.build(OperatingPoint(48)).memory_bytes
    assert engine.build(OperatingPoint(48, precision="int8")).memory_bytes < 0.5 * whole


def test_the_plugin_really_runs_int8(cache: Path) -> None:
    engine = make_engine(quantised_bundle("resnet18"), cache, max_batch=1)
    network = engine.build(OperatingPoint(48, precision="int8"))
    graph = network.single.get_compiled_model().get_runtime_model()
    convolutions = [
        node.get_rt_info()["runtimePrecision"].astype(str)
        for node in graph.get_ops()
        if node.get_rt_info()["layerType"].astype(str) == "Convolution"
    ]
    assert len(convolutions) == 20
    assert sum(precision in ("u8", "i8") for precision in convolutions) >= 19


def test_a_bundle_that_was_not_quantised_has_no_int8(cache: Path) -> None:
    engine = make_engine(make_bundle("resnet18"), cache)
    assert engine.precisions == ("float",)
    with pytest.raises(EngineUnavailableError, match="san quantize"):
        engine.build(OperatingPoint(48, precision="int8"))


def test_a_cpu_that_computes_it_wrongly_has_no_int8(cache: Path) -> None:
    wrong = CpuDecision("", "f32", False, True, "float32 only")
    bundle = quantised_bundle("resnet18")
    engine = OpenVinoEngine(bundle, threads=1, max_batch=1, decision=wrong, cache_dir=cache)
    assert engine.precisions == ("float",)
