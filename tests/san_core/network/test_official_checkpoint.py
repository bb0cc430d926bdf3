from pathlib import Path

import pytest
import torch

from san_cli.__main__ import COMMANDS, dispatch
from san_core.bundle import load
from san_core.errors import OfficialCheckpointError
from san_core.network.official_checkpoint import (
    ARCHITECTURES,
    OFFICIAL_RESOLUTIONS,
    from_official,
    read_official,
)
from tests.san_core import published_code


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_imported_network_computes_what_the_published_code_computes(architecture: str) -> None:
    images = torch.rand(1, 3, 64, 64)
    _, state = published_code.run(architecture, images, 0)
    network = from_official(state, architecture)
    for index, resolution in enumerate(OFFICIAL_RESOLUTIONS):
        expected, _ = published_code.run(architecture, images, index, state)
        with torch.no_grad():
            found = network(images, resolution)
        assert float((found - expected).abs().max()) <= 1e-4 * float(expected.abs().max())


@pytest.fixture(scope="module")
def checkpoint() -> dict[str, torch.Tensor]:
    return published_code.run("resnet18", torch.rand(1, 3, 32, 32), 0)[1]


def test_command_turns_a_checkpoint_file_into_a_bundle(
    checkpoint: dict[str, torch.Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model_best.pth.tar"
    torch.save({"epoch": 120, "state_dict": checkpoint, "optimizer": {"state": {}}}, file)
    bundle = tmp_path / "san.safetensors"
    command = ["import-official", str(file), "--arch", "resnet18", "-o", str(bundle)]
    assert dispatch(command, COMMANDS) == 0
    assert "224, 192, 160, 128, 96" in capsys.readouterr().out
    network = load(bundle).network
    assert network.config.num_classes == 11
    assert not network.config.generate_stem


def test_missing_and_unknown_keys_are_listed(checkpoint: dict[str, torch.Tensor]) -> None:
    broken = dict(checkpoint)
    broken["module.layer9.fc1.weight"] = broken.pop("module.layer2.0.fc3.weight")
    with pytest.raises(OfficialCheckpointError) as error:
        from_official(broken, "resnet18")
    assert "Missing: layer2.0.fc3.weight" in str(error.value)
    assert "Unknown: layer9.fc1.weight" in str(error.value)


def test_a_wrong_shape_is_named(checkpoint: dict[str, torch.Tensor]) -> None:
    broken = checkpoint | {"module.layer1.0.fc1.weight": torch.zeros(3, 1)}
    with pytest.raises(OfficialCheckpointError, match=r"layer1\.0\.fc1.weight has shape"):
        from_official(broken, "resnet18")


def test_foreign_files_are_refused_and_never_unpickled(tmp_path: Path) -> None:
    text = tmp_path / "text.pth"
    text.write_text("not a checkpoint")
    pickled = tmp_path / "pickled.pth"
    torch.save({"state_dict": Path("evil")}, pickled)
    for file in (text, pickled, tmp_path / "none.pth"):
        with pytest.raises(OfficialCheckpointError):
            read_official(file, "resnet18")
    with pytest.raises(OfficialCheckpointError, match="Unknown official architecture"):
        read_official(text, "resnet34")
