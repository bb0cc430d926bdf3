import torch

from san_core.bundle import DEFAULT_BUNDLE, load, read_manifest
from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from training.lift.pretrained import imagenet_classes


def test_the_default_bundle_is_small_enough_to_commit_and_says_where_it_is_from() -> None:
    assert DEFAULT_BUNDLE.stat().st_size < 25e6
    assert "Apache License" in (DEFAULT_BUNDLE.parent / "NOTICE").read_text()
    assert "Apache-2.0" in read_manifest().provenance["licence"]


def test_it_knows_imagenets_classes() -> None:
    assert read_manifest().classes == imagenet_classes()


def test_every_mode_of_every_trained_resolution_was_measured() -> None:
    manifest = read_manifest()
    measured = {accuracy.point: accuracy for accuracy in manifest.accuracy}
    for resolution in manifest.network.resolutions:
        found = [measured[OperatingPoint(resolution, mode)] for mode in Mode]
        assert all(accuracy.n >= 2000 for accuracy in found)
        assert len({accuracy.top1 for accuracy in found}) == 1  # one network, whatever its mode


def test_its_provenance_names_no_private_path() -> None:
    text = read_manifest().model_dump_json()
    assert not any(root in text for root in ("/home/", "/root/", "/tmp/"))


def test_from_192_pixels_up_it_is_the_pretrained_network() -> None:
    network = load().network
    network.temperatures = ()  # they differ, and no answer with them
    native = network.generate(224)
    for mode in Mode:
        for name, tensor in network.generate(192, mode).items():
            assert torch.equal(tensor, native[name])
        assert not torch.equal(
            network.generate(160, mode)["conv_stem.weight"], native["conv_stem.weight"]
        )


def test_every_trained_resolution_has_a_temperature_and_objects_keep_their_size() -> None:
    manifest = read_manifest()
    assert {r for r, _ in manifest.temperatures} >= set(manifest.network.resolutions)
    crops = [manifest.preprocessing.crop(r) for r in sorted(manifest.network.resolutions)]
    assert crops == sorted(crops)
    assert crops[0] < crops[-1] == 0.875
