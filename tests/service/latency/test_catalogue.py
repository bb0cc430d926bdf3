import pytest

from san_core.bundle import Accuracy, Manifest
from san_core.frontier import OperatingPoint
from san_core.mode import Mode
from san_core.network.network_config import NetworkConfig
from service.latency.catalogue import Catalogue


def manifest(accuracy=(), calibrated=()):
    return Manifest(
        name="m",
        network=NetworkConfig("resnet18", (128, 96, 64), num_classes=2),
        classes=("a", "b"),
        accuracy=tuple(
            Accuracy(resolution=r, mode=m, precision=p, top1=t, top5=1.0, n=n, dataset="d")
            for r, m, p, t, n in accuracy
        ),
        calibrated=calibrated,
    )


MEASURED = manifest(
    [
        (64, Mode.PROXY, "float", 0.5, 10),
        (96, Mode.PROXY, "float", 0.7, 10),
        (96, Mode.DATA_FREE, "float", 0.7, 10),
        (112, Mode.PROXY, "float", 0.6, 10),
        (112, Mode.DATA_FREE, "float", 0.75, 10),
        (128, Mode.PROXY, "float", 0.8, 10),
        (128, Mode.PROXY, "int8", 0.78, 10),
    ]
)


def test_only_precisions_the_engine_has():
    assert all(x.point.precision == "float" for x in Catalogue(MEASURED, ("float",)).listings)
    assert len(Catalogue(MEASURED, ("float", "int8")).listings) == 7


def test_points_that_cannot_be_on_the_frontier_are_not_built():
    worth = [x.point for x in Catalogue(MEASURED, ("float",)).worth_building()]
    assert worth == [
        OperatingPoint(64),
        OperatingPoint(96),
        OperatingPoint(112, Mode.DATA_FREE),
        OperatingPoint(128),
    ]


def test_points_that_hardly_move_the_frontier_are_not_built_but_the_best_is():
    made = manifest(
        [
            (64, Mode.PROXY, "int8", 0.5, 10),
            (80, Mode.PROXY, "int8", 0.503, 10),
            (96, Mode.PROXY, "int8", 0.7, 10),
            (96, Mode.PROXY, "float", 0.699, 10),
            (112, Mode.PROXY, "float", 0.702, 10),
            (128, Mode.PROXY, "float", 0.703, 10),
        ]
    )
    catalogue = Catalogue(made, ("float", "int8"))
    assert [x.shape for x in catalogue.worth_building()] == [
        (64, "int8"),
        (96, "int8"),
        (128, "float"),
    ]
    assert [x.shape for x in catalogue.essential()] == [(96, "int8"), (64, "int8")]


def test_without_an_evaluation_every_trained_resolution_is_built():
    catalogue = Catalogue(manifest(), ("float",))
    assert [x.point.resolution for x in catalogue.worth_building()] == [64, 96, 128]
    assert [x.point.resolution for x in catalogue.essential()] == [128, 96, 64]


def test_a_pin_leaves_what_was_evaluated_there():
    catalogue = Catalogue(MEASURED, ("float",))
    assert [x.point.mode for x in catalogue.find(112, None)] == [Mode.DATA_FREE]  # the best
    assert [x.point.mode for x in catalogue.find(96, None)] == [
        Mode.PROXY
    ]  # the simplest of equals
    both = Catalogue(MEASURED, ("float", "int8")).find(128, None)
    assert {x.point.precision for x in both} == {"float", "int8"}
    assert {x.point.resolution for x in catalogue.find(None, Mode.DATA_FREE)} == {96, 112}
    assert [x.accuracy for x in catalogue.find(112, Mode.PROXY)] == [0.6]


def test_a_resolution_between_evaluated_ones_gets_an_estimate_that_says_so():
    (found,) = Catalogue(MEASURED, ("float",)).find(104, None)
    assert found.point == OperatingPoint(104, Mode.DATA_FREE)
    assert found.accuracy == pytest.approx(0.725)
    assert found.measured is None
    assert found.accuracy_source == "interpolated"


@pytest.mark.parametrize("resolution", [256, 129, 63, 33])
def test_outside_of_what_was_evaluated_no_accuracy_is_claimed(resolution):
    (beyond,) = Catalogue(MEASURED, ("float", "int8")).find(resolution, None)
    assert beyond.point.mode is Mode.PROXY
    assert beyond.accuracy is None
    assert beyond.accuracy_source is None


def test_a_pinned_precision():
    catalogue = Catalogue(MEASURED, ("float", "int8"))
    assert [x.point for x in catalogue.find(128, None, "int8")] == [
        OperatingPoint(128, Mode.PROXY, "int8")
    ]
    assert [x.point.precision for x in catalogue.find(None, None, "int8")] == ["int8"]
    (unseen,) = catalogue.find(104, None, "int8")
    assert unseen.point.precision == "int8"
    assert unseen.accuracy is None  # only one resolution was evaluated in int8


def test_calibrated_resolutions_default_to_ideal():
    catalogue = Catalogue(manifest(calibrated=(72,)), ("float",))
    assert catalogue.default_mode(72) is Mode.IDEAL


def test_a_mode_nobody_evaluated_is_estimated_on_the_trained_resolutions():
    found = Catalogue(MEASURED, ("float",)).find(None, Mode.IDEAL)
    assert [x.point for x in found] == [OperatingPoint(r, Mode.IDEAL) for r in (128, 96, 64)]


def test_a_bundle_without_an_evaluation_claims_no_accuracy():
    catalogue = Catalogue(manifest(), ("float",))
    assert [x.point.resolution for x in catalogue.listings] == [64, 96, 128]
    assert all(x.accuracy is None for x in catalogue.listings)
    assert catalogue.best.point.resolution == 128
    assert catalogue.find(80, None)[0].accuracy is None
