import pytest
from hypothesis import given
from hypothesis import strategies as st

from san_core.errors import ResolutionError
from san_core.resolution import (
    Provenance,
    check_resolution,
    check_trained,
    nearest,
    neighbours,
    provenance,
)

PAPER = (224, 192, 160, 128, 96)
trained_sets = st.lists(st.integers(32, 512), min_size=1, max_size=6, unique=True)


@pytest.mark.parametrize(
    ("resolution", "row"),
    # the shaded cells of the paper's Table 1
    [(256, 224), (224, 224), (208, 192), (192, 192), (176, 160), (144, 128), (112, 96), (64, 96)],
)
def test_nearest_follows_the_shaded_cells_of_table_1(resolution: int, row: int) -> None:
    assert nearest(resolution, PAPER) == row


@given(st.integers(32, 512), trained_sets)
def test_neighbours_enclose_the_resolution_or_are_the_edge(T: int, trained: list[int]) -> None:
    floor, ceil = neighbours(T, trained)
    if min(trained) <= T <= max(trained):
        assert floor <= T <= ceil
        assert not any(floor < s < ceil for s in trained)
        assert (floor == ceil) == (T in trained)
    else:
        assert floor == ceil == (min(trained) if min(trained) > T else max(trained))


@given(st.integers(32, 512), trained_sets)
def test_nearest_is_nearest(T: int, trained: list[int]) -> None:
    assert abs(nearest(T, trained) - T) == min(abs(s - T) for s in trained)


def test_provenance() -> None:
    assert provenance(160, PAPER) is Provenance.TRAINED
    assert provenance(161, PAPER) is Provenance.INTERPOLATED
    assert provenance(64, PAPER) is Provenance.EXTRAPOLATED
    assert provenance(256, PAPER) is Provenance.EXTRAPOLATED


@pytest.mark.parametrize("bad", [0, -96, 31, 1025, 96.0, True])
def test_unusable_resolutions_are_refused(bad: object) -> None:
    with pytest.raises(ResolutionError):
        check_resolution(bad)  # type: ignore[arg-type]


def test_trained_resolutions_are_kept_largest_first() -> None:
    assert check_trained([96, 224, 160]) == (224, 160, 96)
    with pytest.raises(ResolutionError, match="twice"):
        check_trained([96, 96])
    with pytest.raises(ResolutionError, match="At least one"):
        check_trained([])
