"""A bundle in memory that nobody can take away."""

import hashlib

import pytest
import torch

import service.serving.bundle_reader as module
from san_core.bundle import load, save
from san_core.errors import BundleError
from service.serving.bundle_reader import read_bundle
from tests.service.conftest import write_bundle


@pytest.fixture
def path(tmp_path):
    made = write_bundle(tmp_path / "served.safetensors")
    bundle = load(made)
    save(made, bundle.network, bundle.manifest, dtype=torch.float16)  # as bundles usually are
    return made


def test_the_file_may_be_overwritten_in_place(path):
    expected = {name: t.clone() for name, t in load(path).network.generate(64).items()}
    bundle, sha256 = read_bundle(path)
    assert sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert bundle.path == path
    path.write_bytes(b"")
    found = bundle.network.generate(64)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_hash_and_tensors_are_of_the_same_bytes(path, monkeypatch):
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    original = module.load

    def replaced_meanwhile(which):
        write_bundle(path, name="newer", seed=1)
        return original(which)

    monkeypatch.setattr(module, "load", replaced_meanwhile)
    bundle, sha256 = read_bundle(path)
    assert (bundle.manifest.name, sha256) == ("tiny", before)


def test_an_error_names_the_file_it_is_about(path, monkeypatch):
    def refuses(which):
        raise BundleError(f"{which} carries NaN.")

    monkeypatch.setattr(module, "load", refuses)
    with pytest.raises(BundleError, match=f"^{path} carries NaN"):
        read_bundle(path)
