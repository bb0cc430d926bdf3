from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file

from san_core import bundle
from san_core.mode import Mode
from san_core.network.architectures import build
from san_core.preprocessing import Preprocessing
from training.commands import lift as command
from training.errors import PretrainedError
from training.lift.pretrained import Pretrained, fit, imagenet_classes, read_pretrained, read_state


def run(*arguments: str) -> int:
    import argparse

    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


@pytest.fixture(scope="module")
def module() -> torch.nn.Module:
    torch.manual_seed(0)
    return build("resnet18", 6).eval()


@pytest.mark.parametrize("wrapper", [None, "state_dict", "model", "model_ema"])
def test_weights_are_found_in_what_scripts_save(
    module: torch.nn.Module, tmp_path: Path, wrapper: str | None
) -> None:
    state = {f"module.{name}": tensor for name, tensor in module.state_dict().items()}
    torch.save({wrapper: state, "epoch": 3} if wrapper else state, tmp_path / "w.pth")
    read = read_state(tmp_path / "w.pth")
    assert read.keys() == module.state_dict().keys()


def test_safetensors_are_read(module: torch.nn.Module, tmp_path: Path) -> None:
    save_file(module.state_dict(), tmp_path / "w.safetensors")
    assert torch.equal(read_state(tmp_path / "w.safetensors")["fc.bias"], module.fc.bias)


def test_code_in_a_file_is_never_run(tmp_path: Path) -> None:
    touched = tmp_path / "touched"

    class Payload:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (touched,))  # type: ignore[return-value]

    torch.save({"state_dict": Payload()}, tmp_path / "evil.pth")
    with pytest.raises(PretrainedError, match=r"pickled module.*never loaded"):
        read_state(tmp_path / "evil.pth")
    assert not touched.exists()


def test_heads_that_only_help_training_are_left_out() -> None:
    published = torchvision.models.googlenet(weights=None, num_classes=4, init_weights=False)
    built, _ = fit(Pretrained(published.state_dict(), "file"), "googlenet")
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(built(images), published.eval()(images))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not weights",
        b"\x80\x02}q\x00.",
        b"\x80\x02X\x04\x00\x00\x00\xff\xff\xff\xff.",  # no text
        b"\x80\x02h\x09.",  # a memo that was never made
        b"\x80\x020.",  # a stack that is empty
    ],
)
def test_broken_files_are_named(tmp_path: Path, content: bytes) -> None:
    for name in ("w.pth", "w.safetensors"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(PretrainedError, match=name):
            read_state(tmp_path / name)


def test_a_missing_file_says_what_else_would_do(tmp_path: Path) -> None:
    with pytest.raises(PretrainedError, match="torchvision:NAME"):
        read_pretrained(str(tmp_path / "absent.pth"), "resnet18")


def test_classes_are_counted_from_the_head(module: torch.nn.Module) -> None:
    built, _ = fit(Pretrained(module.state_dict(), "file"), "resnet18")
    assert built(torch.zeros(1, 3, 64, 64)).shape == (1, 6)


def test_tensors_with_other_names_correspond_in_order(module: torch.nn.Module) -> None:
    renamed = {
        f"layer_{i}": t
        for i, (name, t) in enumerate(module.state_dict().items())
        if not name.endswith("num_batches_tracked")
    }
    # The number of classes cannot be read off foreign names unless the shapes line up.
    built, _ = fit(Pretrained(renamed, "file"), "resnet18")
    images = torch.randn(1, 3, 64, 64)
    assert torch.equal(built(images), module(images))


def test_weights_of_another_architecture_are_refused(module: torch.nn.Module) -> None:
    with pytest.raises(PretrainedError, match=r"does not fit mobilenet_v2: missing"):
        fit(Pretrained(module.state_dict(), "file"), "mobilenet_v2")


def test_torchvision_weights_bring_classes_and_preprocessing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = torchvision.models.get_model_weights("resnet18")["IMAGENET1K_V1"]
    hub = tmp_path / "hub" / "checkpoints"
    hub.mkdir(parents=True)
    torch.manual_seed(0)
    original = build("resnet18").eval()
    torch.save(original.state_dict(), hub / Path(weights.url).name)  # as if fetched before
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    read = read_pretrained("torchvision:IMAGENET1K_V1", "resnet18")
    assert read.classes == imagenet_classes()
    assert len(read.classes) == 1000
    assert read.preprocessing is not None
    assert read.preprocessing.crop_ratio == 0.875
    assert torch.equal(read.state["fc.bias"], original.fc.bias)


def test_torchvision_weights_that_expect_other_numbers_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = torchvision.models.get_model_weights("googlenet")["IMAGENET1K_V1"]
    hub = tmp_path / "hub" / "checkpoints"
    hub.mkdir(parents=True)
    torch.save({"aux1.fc1.bias": torch.zeros(3)}, hub / Path(weights.url).name)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    ours = read_pretrained("torchvision:IMAGENET1K_V1", "googlenet").preprocessing
    assert ours is not None
    stock = torchvision.models.googlenet(weights=None, init_weights=False, transform_input=True)
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3) * 20
    seen = torch.from_numpy(Preprocessing().normalise(pixels)).permute(2, 0, 1)[None]
    theirs = stock._transform_input(seen)[0].permute(1, 2, 0)
    torch.testing.assert_close(torch.from_numpy(ours.normalise(pixels)), theirs)


def test_unknown_sources_are_refused() -> None:
    for source in ("torchvision:NOTHING", "package:nothing"):
        with pytest.raises(PretrainedError):
            read_pretrained(source, "resnet18")


def test_the_command_writes_a_bundle_that_equals_the_original(
    module: torch.nn.Module, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(module.state_dict(), tmp_path / "w.pth")
    (tmp_path / "names.txt").write_text("\n".join("abcdef"))
    out = tmp_path / "made" / "lifted.safetensors"
    code = run(
        *("--arch", "resnet18", "--weights", str(tmp_path / "w.pth"), "--native", "64"),
        *("--resolutions", "96,64", "--classes", str(tmp_path / "names.txt")),
        *("--interpolation", "bicubic", "-o", str(out)),
    )
    assert code == 0
    assert "outputs are the original's" in capsys.readouterr().out
    loaded = bundle.load(out)
    assert loaded.manifest.classes == tuple("abcdef")
    assert loaded.manifest.preprocessing.interpolation == "bicubic"
    assert loaded.manifest.provenance["lifted"]["native"] == 64
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(loaded.network(images, 64, Mode.PROXY), module(images))


def test_the_command_lifts_several_networks_and_reports_the_residual(
    module: torch.nn.Module, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = []
    for side in (96, 64, 48):
        torch.manual_seed(side)
        torch.save(build("resnet18", 6).state_dict(), tmp_path / f"{side}.pth")
        options += ["--weights", f"{side}={tmp_path / f'{side}.pth'}"]
    out = tmp_path / "lifted.safetensors"
    run("--arch", "resnet18", *options, "--resolutions", "96,64,48", "-o", str(out))
    assert "kernels off by" in capsys.readouterr().out
    residuals = bundle.read_manifest(out).provenance["lifted"]["residuals"]
    assert residuals.keys() == {"96", "64", "48"}
    assert all(r["kernels"] > 0.1 for r in residuals.values())


def test_the_command_measures_before_and_after(
    module: torch.nn.Module, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    for label in range(6):
        folder = tmp_path / "val" / f"{label:04}"
        folder.mkdir(parents=True)
        for index in range(2):
            pixels = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{index}.png")
    torch.save(module.state_dict(), tmp_path / "w.pth")
    out = tmp_path / "lifted.safetensors"
    run(
        *("--arch", "resnet18", "--weights", str(tmp_path / "w.pth"), "--native", "64"),
        *("--resolutions", "64,48", "--data", str(tmp_path), "-o", str(out)),
    )
    lines = capsys.readouterr().out.splitlines()
    native = next(line.split() for line in lines if line.split()[:1] == ["64"])
    assert native[1] == native[2]
    assert [a.resolution for a in bundle.read_manifest(out).accuracy] == [64, 48]
    assert all(a.n == 12 for a in bundle.read_manifest(out).accuracy)


def test_two_weights_for_one_resolution_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PretrainedError, match="Two --weights"):
        run(*("--arch", "resnet18", "--weights", "a", "--weights", "b", "-o", str(tmp_path / "x")))


def test_class_names_must_fit(module: torch.nn.Module, tmp_path: Path) -> None:
    torch.save(module.state_dict(), tmp_path / "w.pth")
    (tmp_path / "names.txt").write_text("one\ntwo\n")
    with pytest.raises(PretrainedError, match="2 class names for 6"):
        run(
            *("--arch", "resnet18", "--weights", str(tmp_path / "w.pth"), "--native", "64"),
            *("--resolutions", "64", "--classes", str(tmp_path / "names.txt")),
            *("-o", str(tmp_path / "lifted.safetensors")),
        )
