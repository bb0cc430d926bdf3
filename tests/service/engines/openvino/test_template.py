"""Templates are kept, read again, and refused if they do not fit."""

from pathlib import Path

import numpy as np
import pytest
import torch

from san_core.frontier import OperatingPoint
from san_core.main_network.blueprint import Blueprint
from service.engines.openvino import convert as openvino_convert
from service.engines.openvino.convert import convert_module
from service.engines.openvino.template import shipped_name
from service.errors import EngineUnavailableError
from tests.service.engines.openvino.test_engine import (
    images,
    make_bundle,
    make_engine,
    reference,
    relative_error,
)


def test_a_second_process_reads_the_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make_bundle("resnet18")
    point = OperatingPoint(48)
    expected = make_engine(bundle, tmp_path).build(point).run(images(1, 48))
    monkeypatch.setattr(openvino_convert, "convert", lambda _: pytest.fail("converted again"))
    assert np.array_equal(make_engine(bundle, tmp_path).build(point).run(images(1, 48)), expected)


def test_a_damaged_template_is_made_again(tmp_path: Path) -> None:
    bundle = make_bundle("resnet18")
    make_engine(bundle, tmp_path).build(OperatingPoint(48))
    (template,) = tmp_path.glob("template-*.xml")
    template.write_text("<net")
    network = make_engine(bundle, tmp_path).build(OperatingPoint(48))
    batch = images(1, 48)
    expected = reference(bundle, OperatingPoint(48), batch)
    assert relative_error(network.run(batch), expected) < 1e-4


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    make_engine(make_bundle("resnet18"), in_the_way / "cache").build(OperatingPoint(48))


def test_a_template_without_a_place_for_a_tensor_is_refused() -> None:
    blueprint = Blueprint((), (), {}, (), 0)
    template = convert_module(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3)), blueprint)
    tensors = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 4, 3)).state_dict()
    with pytest.raises(EngineUnavailableError, match=r"1\.bias"):
        template.fill({name: tensor.numpy() for name, tensor in tensors.items()})


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (("resnet18", 1000, True), "resnet18-1000"),
        (("timm:tf_efficientnet_lite0", 7, False), "timm-tf_efficientnet_lite0-7-shared-stem"),
    ],
)
def test_a_templates_name_is_a_file_name(config: tuple[str, int, bool], name: str) -> None:
    assert shipped_name(*config) == name
