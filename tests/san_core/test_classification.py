"""Which resolution and mode are taken if nobody says, and what comes out."""

from __future__ import annotations

import pytest
import torch

from san_core.bundle import Accuracy, Manifest
from san_core.classification import best_mode, best_resolution, top_predictions
from san_core.mode import Mode
from san_core.network.network_config import NetworkConfig

CLASSES = ("cat", "dog", "owl")


def measured(resolution: int, top1: float, mode: Mode = Mode.PROXY, precision: str = "float"):
    return Accuracy(
        resolution=resolution,
        mode=mode,
        precision=precision,
        top1=top1,
        top5=1.0,
        n=100,
        dataset="made up",
    )


def manifest(*accuracy: Accuracy) -> Manifest:
    network = NetworkConfig("resnet18", (96, 64), num_classes=len(CLASSES))
    return Manifest(name="test", network=network, classes=CLASSES, accuracy=accuracy)


def test_the_best_measured_in_float_is_taken():
    found = manifest(
        measured(64, 0.6, Mode.PROXY),
        measured(64, 0.7, Mode.DATA_FREE),
        measured(96, 0.5),
        measured(96, 0.9, precision="int8"),
    )
    assert best_resolution(found) == 64
    assert best_mode(found, 64) is Mode.DATA_FREE


def test_of_two_that_are_equally_good_the_smaller_is_taken():
    assert best_resolution(manifest(measured(96, 0.7), measured(64, 0.7))) == 64


def test_without_a_measurement_the_largest_trained_one_is_taken():
    assert best_resolution(manifest()) == 96
    assert best_mode(manifest(measured(96, 0.5, Mode.DATA_FREE)), 64) is Mode.PROXY


@pytest.mark.parametrize(("top_k", "labels"), [(2, ["owl", "cat"]), (9, ["owl", "cat", "dog"])])
def test_the_most_probable_classes_come_first(top_k, labels):
    found = top_predictions(torch.tensor([1.0, 0.0, 2.0]), CLASSES, top_k)
    assert [prediction.label for prediction in found] == labels
    assert found[0].index == 2
    assert found[0].score == pytest.approx(0.6652, abs=1e-4)  # e^2 / (e^2 + e + 1)
