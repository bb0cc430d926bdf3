"""The OpenVINO engine computes what the torch reference computes."""

import gc
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from san_core.bundle import Bundle, Manifest, read, save
from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from san_core.network.architectures import FIRST_CLASS
from san_core.network.cost import cost
from san_core.network.network_config import NetworkConfig
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from service.engines.openvino import engine as openvino_engine
from service.engines.openvino.cpu_probe import CpuDecision
from service.engines.openvino.engine import OpenVinoEngine
from service.errors import EngineUnavailableError, NotFiniteError

CLASSES = 7
ARCHITECTURES = (*FIRST_CLASS, "timm:tf_efficientnet_lite0")
FLOAT32 = CpuDecision(isa="", precision="f32", int8=True, saturates=True, reason="given")


def make_bundle(architecture: str) -> Bundle:
    """A network in which every tensor matters: nothing is 0 or 1 as freshly initialised."""
    torch.manual_seed(0)
    network = ScaleAdaptiveNetwork(NetworkConfig(architecture, (64, 48), CLASSES))
    with torch.no_grad():
        for norm in network.batch_norms.values():
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.normal_(0.0, 0.1)
            norm.running_mean.normal_(0.0, 0.1)
            norm.running_var.uniform_(0.5, 1.5)
    channels = sum(slot.channels for slot in network.norms)
    network.set_calibrated(
        57, {"running_mean": torch.zeros(channels), "running_var": torch.full((channels,), 0.9)}
    )
    network.requires_grad_(False).eval()
    names = tuple(f"class {i}" for i in range(CLASSES))
    return Bundle(Manifest(name="test", network=network.config, classes=names), network)


def make_engine(
    bundle: Bundle, cache: Path, max_batch: int = 4, threads: int = 1
) -> OpenVinoEngine:
    return OpenVinoEngine(
        bundle,
        threads=threads,
        max_batch=max_batch,
        device="cpu",
        decision=FLOAT32,
        cache_dir=cache,
    )


def images(n: int, side: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (n, side, side, 3), np.uint8)


def reference(bundle: Bundle, point: OperatingPoint, batch: np.ndarray) -> np.ndarray:
    normal = bundle.manifest.preprocessing.normalise(batch)
    nchw = torch.from_numpy(normal).permute(0, 3, 1, 2)
    with torch.no_grad():
        return bundle.network(nchw, point.resolution, point.mode).numpy()


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_equals_the_torch_reference_in_every_mode(architecture: str, cache: Path) -> None:
    bundle = make_bundle(architecture)
    engine = make_engine(bundle, cache)
    seen = []
    for mode in Mode:
        point = OperatingPoint(57, mode)  # odd: TF's "same" padding is then uneven
        network = engine.build(point)
        for n in (1, 3):
            batch = images(n, 57)
            expected = reference(bundle, point, batch)
            assert relative_error(network.run(batch), expected) < 1e-4
        seen.append(expected)
    assert relative_error(seen[0], seen[1]) > 1e-2  # the modes are told apart
    assert relative_error(seen[1], seen[2]) > 1e-2


@pytest.mark.parametrize("max_batch", [9, 4, 1])
@pytest.mark.parametrize("finished", [True, False])
def test_a_batch_of_any_size_is_its_images_one_by_one(
    max_batch: int, finished: bool, cache: Path
) -> None:
    engine = make_engine(make_bundle("mobilenet_v2"), cache, max_batch, threads=2)
    network = engine.build(OperatingPoint(48))
    if finished:
        network.finish()
    for n in range(1, 12):
        batch = images(n, 48)
        expected = np.concatenate([network.run(image[np.newaxis]) for image in batch])
        assert relative_error(network.run(batch), expected) < 1e-4


def test_a_build_compiles_once_and_batches_follow(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's pin costs no more than a first answer needs."""
    engine = make_engine(make_bundle("resnet18"), cache, threads=2)
    made: list[str] = []
    properties = engine._properties
    monkeypatch.setattr(engine, "_properties", lambda what: made.append(what) or properties(what))
    network = engine.build(OperatingPoint(48))
    network.run(images(3, 48))
    assert set(made) == {"single"}
    network.finish()
    assert set(made) == {"single", "streams"}


def test_one_image_runs_on_one_thread_only_while_that_is_clearly_faster(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = make_engine(make_bundle("resnet18"), cache, threads=2).build(OperatingPoint(48))
    for on_all, on_one, expected in ((1, 2, False), (2, 1, True), (2, 2, False)):
        ticks = itertools.accumulate(itertools.cycle([0, on_all, 0, on_one]))
        monkeypatch.setattr(openvino_engine.time, "perf_counter", ticks.__next__)
        network.finish()
        assert network.on_one_thread == expected


def test_a_result_is_the_callers_to_keep(cache: Path) -> None:
    bundle = make_bundle("resnet18")
    network = make_engine(bundle, cache).build(OperatingPoint(48))
    one, other = images(1, 48), images(2, 48)[1:].copy()
    first = network.run(one)
    before = first.copy()
    network.run(other)
    assert np.array_equal(first, before)


def test_networks_outlive_their_tensors_and_their_engine(cache: Path) -> None:
    bundle = make_bundle("mobilenet_v2")
    point = OperatingPoint(64, Mode.PROXY)
    batch = images(1, 64)
    network = make_engine(bundle, cache, max_batch=1).build(point)
    expected = network.run(batch)
    gc.collect()
    scribble = [torch.full((1_000_000,), 1e9) for _ in range(8)]
    assert np.array_equal(network.run(batch), expected)
    del scribble


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Path, Path]:
    """A bundle's file, and a cache in which an engine left its networks."""
    path, cache = tmp_path / "b.safetensors", tmp_path / "cache"
    made = make_bundle("mobilenet_v2")
    save(path, made.network, made.manifest)
    network = make_engine(read(path), cache, threads=2).build(OperatingPoint(48))
    network.finish()
    return path, cache


def test_a_second_process_reads_what_was_compiled(
    kept: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, cache = read(kept[0]), kept[1]
    monkeypatch.setattr(OpenVinoEngine, "graph", lambda *_: pytest.fail("generated again"))
    network = make_engine(bundle, cache, threads=2).build(OperatingPoint(48))
    network.finish()
    batch = images(3, 48)
    assert relative_error(network.run(batch), reference(bundle, OperatingPoint(48), batch)) < 1e-4


def test_what_is_never_finished_takes_no_room_on_the_disk(kept: tuple[Path, Path]) -> None:
    """What clients pin would put the frontier out of the cache, and costs each pin its writing."""
    path, cache = kept
    before = set(cache.glob("*.compiled"))
    network = make_engine(read(path), cache, threads=2).build(OperatingPoint(57))
    assert set(cache.glob("*.compiled")) == before
    network.finish()
    assert len(set(cache.glob("*.compiled")) - before) == 2


def test_what_was_compiled_for_another_bundle_or_damaged_is_not_used(
    kept: tuple[Path, Path],
) -> None:
    path, cache = kept
    for file in cache.glob("*.compiled"):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    bundle = read(path)
    batch = images(1, 48)
    network = make_engine(bundle, cache, threads=2).build(OperatingPoint(48))
    assert relative_error(network.run(batch), reference(bundle, OperatingPoint(48), batch)) < 1e-4
    changed = bundle.network
    changed.meta_learner.bias.data.mul_(1.5)
    save(path, changed, bundle.manifest)
    other = make_engine(read(path), cache, threads=2).build(OperatingPoint(48))
    assert relative_error(other.run(batch), network.run(batch)) > 1e-2


def test_what_an_image_costs_is_what_torch_counts(cache: Path) -> None:
    for architecture in ("mobilenet_v2", "resnext50_32x4d"):
        bundle = make_bundle(architecture)
        assert make_engine(bundle, cache).cost(64, "float") == cost(bundle.network, 64)


def test_it_says_what_it_runs_on(cache: Path) -> None:
    facts = make_engine(make_bundle("resnet18"), cache).describe()
    assert facts["reason"] == "given"
    assert facts["float"] == "f32"
    assert facts["library"].startswith("openvino ")


def test_float_is_float32_unless_bfloat16_was_asked_for(cache: Path) -> None:
    faster = CpuDecision("", "bf16", True, False, "bf16 2x f32")
    for asked, told in ((False, "f32"), (True, "bf16")):
        engine = OpenVinoEngine(
            make_bundle("resnet18"),
            threads=1,
            max_batch=1,
            decision=faster,
            bf16=asked,
            cache_dir=cache,
        )
        assert engine.describe()["float"] == told


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_other_devices_are_not_its_business(device: str, cache: Path) -> None:
    with pytest.raises(EngineUnavailableError, match="cpu"):
        OpenVinoEngine(make_bundle("resnet18"), threads=1, max_batch=1, device=device)


def test_a_cpu_that_runs_nothing_is_an_unavailable_engine(cache: Path) -> None:
    hopeless = CpuDecision("", "f32", False, True, "killed by SIGILL", usable=False)
    with pytest.raises(EngineUnavailableError, match="SIGILL"):
        OpenVinoEngine(
            make_bundle("resnet18"), threads=1, max_batch=1, decision=hopeless, cache_dir=cache
        )


@pytest.mark.parametrize("n", [1, 3])
def test_what_is_not_a_number_is_refused_in_batches_too(
    n: int, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = make_engine(make_bundle("resnet18"), cache).build(OperatingPoint(48))
    nothing = np.full((1, CLASSES), np.nan, np.float32)
    monkeypatch.setattr(
        openvino_engine, "_infer", lambda _, values: nothing.repeat(len(values), axis=0)
    )
    with pytest.raises(NotFiniteError):
        network.run(images(n, 48))
