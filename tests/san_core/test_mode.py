from san_core.mode import Ingredients, Mode, ingredients

PAPER = (224, 192, 160, 128, 96)


def test_all_modes_agree_at_a_trained_resolution() -> None:
    for mode in Mode:
        assert ingredients(160, mode, PAPER, [160]) == Ingredients(160, 160, 160, 0.0)


def test_proxy_takes_encoding_and_batch_norm_of_the_nearest() -> None:
    assert ingredients(208, Mode.PROXY, PAPER) == Ingredients(192, 192, 192, 0.0)


def test_ideal_takes_its_own_encoding_and_calibrated_statistics_if_there_are() -> None:
    assert ingredients(208, Mode.IDEAL, PAPER) == Ingredients(208, 192, 192, 0.0)
    assert ingredients(208, Mode.IDEAL, PAPER, [208]) == Ingredients(208, 192, 192, 0.0, 208)


def test_data_free_blends_its_neighbours() -> None:
    assert ingredients(200, Mode.DATA_FREE, PAPER) == Ingredients(200, 192, 224, 0.25)


def test_data_free_outside_the_range_holds_the_edges_batch_norm() -> None:
    assert ingredients(256, Mode.DATA_FREE, PAPER) == Ingredients(256, 224, 224, 0.0)
    assert ingredients(64, Mode.DATA_FREE, PAPER) == Ingredients(64, 96, 96, 0.0)
