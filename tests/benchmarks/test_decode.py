"""The top-1 of each way to decode, with a network and a service that know the answer."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import decode
from benchmarks.driving.photo import photo
from benchmarks.driving.wire import Answer
from san_core.preprocessing import Preprocessing

CLASSES = tuple(f"class {number}" for number in range(12))


class Network:
    """Its answer is always the class with the number 10."""

    def run(self, batch: np.ndarray) -> np.ndarray:
        return np.eye(len(CLASSES))[[10]]


class Client:
    """A service that says the same."""

    def send(self, request: bytes) -> Answer:
        told = {
            "resolution": 64,
            "mode": "proxy",
            "precision": "float",
            "predictions": [{"index": 10}],
        }
        return Answer(200, b"", json.dumps(told).encode())


@pytest.fixture
def bundle(monkeypatch):
    engine = SimpleNamespace(build=lambda _: Network())
    monkeypatch.setattr(decode, "OpenVinoEngine", lambda *_, **__: engine)
    return SimpleNamespace(manifest=SimpleNamespace(classes=CLASSES, preprocessing=Preprocessing()))


@pytest.mark.parametrize("quick", [False, True])
def test_folders_stand_for_classes_as_they_do_in_the_evaluation(bundle, tmp_path, quick):
    # Sorted by name 10 comes before 2.
    for name in ("2", "10"):
        (tmp_path / name).mkdir()
        for number in range(15):
            (tmp_path / name / f"{number}.jpg").write_bytes(photo(64))
    (found,) = decode.top1(bundle, Client(), tmp_path, [64], quick)
    assert found["n"] == (20 if quick else 30)
    ways = (*decode.WAYS, decode.SERVED)
    assert found["top1"] == dict.fromkeys(ways, 0.5)
    assert found["agrees"] == dict.fromkeys(ways, 1.0)
