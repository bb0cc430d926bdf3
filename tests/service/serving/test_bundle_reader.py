"""A bundle in memory that nobody can take away."""

import pytest
import torch

import service.serving.bundle_reader as module
from san_core.bundle import load, save
from san_core.errors import BundleError
from service.latency.store import fingerprint
from service.serving.bundle_reader import BundleReader
from tests.service.conftest import write_bundle


@pytest.fixture
def path(tmp_path):
    made = write_bundle(tmp_path / "served.safetensors")
    bundle = load(made)
    save(made, bundle.network, bundle.manifest, dtype=torch.float16)  # as bundles usually are
    return made


@pytest.fixture
def shared(tmp_path):
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


@pytest.mark.parametrize("several", [False, True])
def test_the_file_may_be_overwritten_in_place(path, shared, several):
    expected = {name: t.clone() for name, t in load(path).network.generate(64).items()}
    bundle, sha256 = BundleReader(shared if several else None).read(path)
    assert sha256 == fingerprint(path)
    path.write_bytes(b"")
    found = bundle.network.generate(64)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_readers_of_a_directory_map_one_file(path, shared):
    first, _ = BundleReader(shared).read(path)
    (copy,) = shared.glob("*.safetensors")
    made = copy.stat().st_mtime_ns
    second, sha256 = BundleReader(shared).read(path)
    assert copy.stem == sha256
    assert copy.stat().st_mtime_ns == made
    assert second.manifest == first.manifest
    for one, other in zip(first.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(one, other)
        assert one.dtype == torch.float32


def test_a_successor_begins_with_what_the_others_serve(path, shared):
    reader = BundleReader(shared)
    _, served = reader.read(path)
    reader.serves(served)
    write_bundle(path, name="newer", seed=1)
    successor = BundleReader(shared, resume=True)
    assert successor.read(path)[1] == served
    bundle, sha256 = successor.read(path)  # a reload afterwards
    assert (bundle.manifest.name, sha256) == ("newer", fingerprint(path))
    successor.serves(sha256)
    assert [copy.stem for copy in shared.glob("*.safetensors")] == [sha256]


def test_without_room_to_share_each_has_its_own(path, shared, monkeypatch, caplog):
    def full(*_, **__):
        raise BundleError("No space left on device.")

    monkeypatch.setattr(module, "save", full)
    bundle, sha256 = BundleReader(shared).read(path)
    assert sha256 == fingerprint(path)
    assert "cannot share" in caplog.text
    path.write_bytes(b"")
    assert bundle.network.generate(64)


def test_a_file_that_changes_meanwhile_is_not_served(path, shared, monkeypatch):
    original = module.load

    def changing(which):
        bundle = original(which)
        write_bundle(path, name="newer", seed=1)
        return bundle

    monkeypatch.setattr(module, "load", changing)
    with pytest.raises(BundleError, match="changed while it was read"):
        BundleReader(shared).read(path)
    assert not list(shared.glob("*.safetensors"))
