import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

from san_core.bundle import Accuracy, Manifest, load, read, read_manifest, replace_accuracy, save
from san_core.errors import (
    BundleError,
    BundleMismatchError,
    BundleNotFoundError,
    CorruptManifestError,
    ForeignFileError,
    NewerBundleError,
    NonFiniteBundleError,
    TruncatedBundleError,
)
from san_core.mode import Mode
from san_core.network.network_config import MetaLearnerKind, NetworkConfig
from san_core.network.scale_adaptive_network import ScaleAdaptiveNetwork
from san_core.preprocessing import Preprocessing

CLASSES = tuple("abcdefg")


@pytest.fixture(scope="module")
def network(make_network: Callable[..., ScaleAdaptiveNetwork]) -> ScaleAdaptiveNetwork:
    network = make_network("mobilenet_v2")
    channels = sum(slot.channels for slot in network.norms)
    statistics = {"running_mean": torch.rand(channels), "running_var": torch.rand(channels) + 0.5}
    network.set_calibrated(80, statistics)
    return network


def measured(resolution: int, top1: float, mode: Mode = Mode.PROXY) -> Accuracy:
    return Accuracy(
        resolution=resolution, mode=mode, top1=top1, top5=1.0, n=100, dataset="drawn shapes"
    )


@pytest.fixture
def manifest(network: ScaleAdaptiveNetwork) -> Manifest:
    return Manifest(
        name="tiny",
        network=network.config,
        classes=CLASSES,
        accuracy=(measured(96, 0.7), measured(48, 0.5)),
        provenance={"licence": "Apache-2.0", "recipe": {"epochs": 1}},
    )


@pytest.fixture
def file(network: ScaleAdaptiveNetwork, manifest: Manifest, tmp_path: Path) -> Path:
    path = tmp_path / "tiny.safetensors"
    save(path, network, manifest, extras={"quantization.96.low": torch.arange(3.0)})
    return path


def rewrite_manifest(file: Path, change: Callable[[dict], None]) -> None:  # type: ignore[type-arg]
    raw = file.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    manifest = json.loads(header["__metadata__"]["san_manifest"])
    change(manifest)
    header["__metadata__"]["san_manifest"] = json.dumps(manifest)
    new = json.dumps(header).encode()
    file.write_bytes(len(new).to_bytes(8, "little") + new + raw[8 + length :])


def test_round_trip(network: ScaleAdaptiveNetwork, manifest: Manifest, file: Path) -> None:
    bundle = load(file)
    assert bundle.manifest == manifest.model_copy(update={"calibrated": (80,)})
    assert read_manifest(file) == bundle.manifest
    assert torch.equal(bundle.extras["quantization.96.low"], torch.arange(3.0))
    for mode in Mode:
        expected = network.generate(80, mode)
        for name, tensor in bundle.network.generate(80, mode).items():
            assert torch.equal(tensor, expected[name]), (name, mode)


def test_others_may_read_it(file: Path) -> None:
    assert file.stat().st_mode & 0o444 == 0o444


def test_half_precision_halves_the_file_and_keeps_the_answer(
    network: ScaleAdaptiveNetwork, manifest: Manifest, file: Path, tmp_path: Path
) -> None:
    half = tmp_path / "half.safetensors"
    save(half, network, manifest, dtype=torch.float16)
    assert half.stat().st_size < 0.6 * file.stat().st_size
    bundle = load(half)
    assert all(p.dtype == torch.float32 for p in bundle.network.parameters())
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        expected = network(images, 64)
        torch.testing.assert_close(bundle.network(images, 64), expected, rtol=0.02, atol=0.02)


def test_float32_tensors_are_not_copied_out_of_the_mapping(file: Path) -> None:
    weight = load(file).network.meta_learner.weight
    mapped = [
        tuple(int(end, 16) for end in line.split()[0].split("-"))
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith(file.name)
    ]
    assert any(start <= weight.data_ptr() < end for start, end in mapped)


def test_what_was_read_outlives_its_file(file: Path) -> None:
    expected = load(file).network.generate(64)
    expected = {name: tensor.clone() for name, tensor in expected.items()}
    bundle = read(file)
    assert bundle.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    file.write_bytes(b"")
    found = bundle.network.generate(64)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_file_cut_anywhere_is_reported_as_truncated_or_foreign(file: Path) -> None:
    whole = file.read_bytes()
    for keep in (0, 5, 8, 300, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:keep])
        expected = ForeignFileError if keep <= 8 else TruncatedBundleError
        with pytest.raises(expected):
            load(file)


def test_foreign_files(tmp_path: Path) -> None:
    jpeg = tmp_path / "photo.safetensors"
    jpeg.write_bytes(b"\xff\xd8\xff\xe0" * 100)
    plain = tmp_path / "plain.safetensors"
    save_file({"weight": torch.zeros(2)}, plain)
    with pytest.raises(ForeignFileError, match="not a safetensors file"):
        load(jpeg)
    with pytest.raises(ForeignFileError, match="no manifest"):
        load(plain)
    with pytest.raises(BundleNotFoundError):
        load(tmp_path / "none.safetensors")


def test_the_first_format_is_still_read(file: Path) -> None:
    def age(manifest: dict[str, Any]) -> None:
        manifest.update(format_version=1)
        manifest.pop("temperatures")
        manifest["network"].pop("knots")
        manifest["preprocessing"].pop("crops")

    rewrite_manifest(file, age)
    found = load(file)
    assert found.network.temperatures == ()
    assert found.manifest.preprocessing.crop(64) == 0.875


def test_what_depends_on_the_resolution_survives(
    make_network: Callable[..., ScaleAdaptiveNetwork], tmp_path: Path
) -> None:
    network = make_network("mobilenet_v2", meta_learner=MetaLearnerKind.PIECEWISE, knots=(48, 64))
    network.temperatures = ((48, 0.5), (96, 1.5))
    crops = Preprocessing(crops=((48, 0.6), (96, 0.8)))
    manifest = Manifest(name="tiny", network=network.config, classes=CLASSES, preprocessing=crops)
    save(tmp_path / "tiny.safetensors", network, manifest)
    found = load(tmp_path / "tiny.safetensors")
    assert found.manifest.network.knots == (64, 48)
    assert found.manifest.preprocessing == crops
    assert found.network.temperatures == found.manifest.temperatures == ((48, 0.5), (96, 1.5))
    images = torch.randn(2, 3, 56, 56)
    torch.testing.assert_close(found.network(images, 56), network(images, 56))


def test_equal_tensors_are_stored_once(
    make_network: Callable[..., ScaleAdaptiveNetwork], tmp_path: Path
) -> None:
    network = make_network("mobilenet_v2")
    manifest = Manifest(name="tiny", network=network.config, classes=CLASSES)
    path = tmp_path / "tiny.safetensors"
    save(path, network, manifest)
    apart = path.stat().st_size
    for resolution in network.resolutions[1:]:
        source = network.batch_norm(network.resolutions[0]).state_dict()
        network.batch_norm(resolution).load_state_dict(source)
    save(path, network, manifest)
    rows = (len(network.resolutions) - 1) * 4 * 4 * sum(slot.channels for slot in network.norms)
    assert apart - path.stat().st_size > 0.9 * rows
    found = load(path).network.state_dict()
    assert all(torch.equal(tensor, found[name]) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize("aliases", ["[]", "{", '{"network.x": "network.none"}', '{"a": []}'])
def test_aliases_that_cannot_be_meant(file: Path, aliases: str) -> None:
    with safe_open(file, "pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        metadata = opened.metadata()
    save_file(tensors, file, metadata=metadata | {"san_aliases": aliases})
    with pytest.raises(CorruptManifestError, match="the same"):
        load(file)


def test_newer_format(file: Path) -> None:
    rewrite_manifest(file, lambda m: m.update(format_version=99, something_new=1))
    with pytest.raises(NewerBundleError, match="format 99"):
        load(file)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(classes=["only one"]),
        lambda m: m.pop("network"),
        lambda m: m.update(surprise=1),
        lambda m: m["network"].update(resolutions=[]),
        lambda m: m["accuracy"][0].update(top1=70.0),
        lambda m: m["preprocessing"].update(crop_ratio=0.0),
        lambda m: m["preprocessing"].update(crops=[[96, 1.5]]),
        lambda m: m.update(temperatures=[[96, 0.0]]),
        lambda m: m["network"].update(knots=[96, 64]),
        lambda m: m["network"].update(meta_learner=MetaLearnerKind.PIECEWISE),
        lambda m: m["preprocessing"].update(std=[0.2, 0.0, 0.2]),
        lambda m: m.update(format_version="2"),
        lambda m: m.update(format_version=1.0),
        lambda m: m.update(format_version=0),
        lambda m: m.update(format_version=-1),
    ],
)
def test_corrupt_manifest(file: Path, change: Callable[[dict], None]) -> None:  # type: ignore[type-arg]
    rewrite_manifest(file, change)
    with pytest.raises(CorruptManifestError):
        load(file)


def write_header(path: Path, header: str) -> None:
    raw = header.encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(64))


@pytest.mark.parametrize(
    "header",
    [
        '{"__metadata__": ["san_manifest"]}',
        '{"weight": {"dtype": "F32", "shape": [1], "data_offsets": ["0", "4"]}}',
        '{"weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4.5]}}',
        '{"weight": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)
def test_headers_that_are_not_safetensors(tmp_path: Path, header: str) -> None:
    path = tmp_path / "odd.safetensors"
    write_header(path, header)
    with pytest.raises(ForeignFileError, match="header is not safetensors'"):
        load(path)


def test_a_manifest_nested_beyond_reading_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "deep.safetensors"
    write_header(path, json.dumps({"__metadata__": {"san_manifest": "[" * 100_000}}))
    with pytest.raises(CorruptManifestError):
        load(path)


def test_kernels_of_whole_numbers_are_refused(file: Path) -> None:
    raw = file.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    header["network.meta_learner.bias"]["dtype"] = "I32"
    new = json.dumps(header).encode()
    file.write_bytes(len(new).to_bytes(8, "little") + new + raw[8 + length :])
    with pytest.raises(BundleMismatchError, match=r"bias is of torch\.int32"):
        load(file)


def test_tensors_that_do_not_fit_the_manifest(file: Path) -> None:
    rewrite_manifest(file, lambda m: m["network"].update(architecture="resnet18"))
    with pytest.raises(BundleMismatchError, match="do not fit"):
        load(file)


def test_not_a_number_is_neither_written_nor_read(
    make_network: Callable[..., ScaleAdaptiveNetwork], file: Path
) -> None:
    before = file.read_bytes()
    network = make_network("mobilenet_v2")
    with torch.no_grad():
        network.batch_norm(96).bias[3] = float("nan")
    manifest = Manifest(name="tiny", network=network.config, classes=CLASSES)
    with pytest.raises(NonFiniteBundleError, match="nothing was written"):
        save(file, network, manifest)
    assert file.read_bytes() == before
    file.write_bytes(before[:-4] + b"\x00\x00\xc0\x7f")  # NaN as the last float32
    with pytest.raises(NonFiniteBundleError, match="must not be served"):
        load(file)


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(
    network: ScaleAdaptiveNetwork, manifest: Manifest, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = file.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(BundleError, match="No space left"):
        save(file, network, manifest)
    assert file.read_bytes() == before
    assert os.listdir(file.parent) == [file.name]  # noqa: PTH208


def test_a_manifest_of_another_network_is_refused(
    network: ScaleAdaptiveNetwork, manifest: Manifest, tmp_path: Path
) -> None:
    other = manifest.model_copy(
        update={"network": type(network.config)("resnet18", (96, 64, 48), 7)}
    )
    with pytest.raises(BundleMismatchError):
        save(tmp_path / "x.safetensors", network, other)


def test_new_figures_replace_those_of_the_same_point(manifest: Manifest) -> None:
    updated = replace_accuracy(manifest, (measured(48, 0.6), measured(64, 0.65)))
    assert [(a.resolution, a.top1) for a in updated.accuracy] == [(96, 0.7), (64, 0.65), (48, 0.6)]


def test_three_lines_from_loading_to_a_prediction(tmp_path):
    import san_core

    Image.effect_noise((60, 50), 80).convert("RGB").save(tmp_path / "a.png")
    bundle = san_core.load()
    best = bundle.classify(str(tmp_path / "a.png"), resolution=64)[0]
    assert best.label == bundle.manifest.classes[best.index]
    assert len(bundle.classify((tmp_path / "a.png").read_bytes(), resolution=64, top_k=3)) == 3
    with pytest.raises(AttributeError, match="no attribute 'unload'"):
        san_core.unload  # noqa: B018


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'san-serve\[torch\]'") as found:
        load()
    assert found.value.name == "torch"


def test_a_bundle_of_a_regnet_is_loaded_again(manifest: Manifest, tmp_path: Path) -> None:
    """Its modules keep numbers that are in no state dict."""
    config = NetworkConfig("regnet_y_400mf", (96, 64), num_classes=len(manifest.classes))
    network = ScaleAdaptiveNetwork(config).eval()
    told = manifest.model_copy(update={"network": config, "calibrated": ()})
    save(tmp_path / "regnet.safetensors", network, told)
    again = load(tmp_path / "regnet.safetensors").network
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        expected = network(images, 64, Mode.DATA_FREE)
        torch.testing.assert_close(again(images, 64, Mode.DATA_FREE), expected)


def test_a_variance_below_zero_is_not_read(
    make_network: Callable[..., ScaleAdaptiveNetwork], manifest: Manifest, tmp_path: Path
) -> None:
    network = make_network("mobilenet_v2")
    for name, tensor in network.state_dict().items():
        if name.endswith("running_var"):
            tensor.fill_(-1.0)
    save(tmp_path / "odd.safetensors", network, manifest)
    with pytest.raises(NonFiniteBundleError, match="variance below zero"):
        load(tmp_path / "odd.safetensors")
