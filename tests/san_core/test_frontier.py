from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from san_core.frontier import OperatingPoint, frontier
from san_core.mode import Mode

Pair = tuple[float, float]
pairs = st.lists(st.tuples(st.floats(0.1, 100), st.floats(0, 1)), max_size=30)


def itself(pair: Pair) -> Pair:
    return pair


@given(pairs)
def test_kept_points_rise_in_both_and_no_point_beats_one(points: list[Pair]) -> None:
    kept = frontier(points, itself)
    assert bool(kept) == bool(points)
    for faster, slower in pairwise(kept):
        assert faster[0] < slower[0]
        assert faster[1] < slower[1]
    for latency, accuracy in points:
        assert any(k[0] <= latency and k[1] >= accuracy for k in kept)


def test_of_equal_points_one_is_kept() -> None:
    assert frontier([(1.0, 0.5), (1.0, 0.5)], itself) == [(1.0, 0.5)]


def test_points_are_keys() -> None:
    assert OperatingPoint(96) == OperatingPoint(96, Mode.PROXY, "float")
    assert len({OperatingPoint(96), OperatingPoint(96, precision="int8")}) == 2
