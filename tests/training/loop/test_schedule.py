import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.loop.schedule import HalfCosine


def test_half_a_cosine_from_the_peak_to_zero() -> None:
    rate = HalfCosine(0.1, 100)
    assert rate(0) == 0.1
    assert rate(50) == pytest.approx(0.05)
    assert rate(25) == pytest.approx(0.05 * (1 + math.cos(math.pi / 4)))
    assert 0 < rate(99) < 1e-4
    assert rate(100) == pytest.approx(0.0)


def test_warm_up_is_linear_and_ends_at_the_peak() -> None:
    rate = HalfCosine(0.4, 100, warmup_steps=4)
    assert [rate(step) for step in range(5)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])


@given(total=st.integers(1, 500), warmup=st.integers(0, 600), final=st.floats(0, 0.05))
def test_never_outside_its_bounds_and_never_rises_after_warm_up(
    total: int, warmup: int, final: float
) -> None:
    rate = HalfCosine(0.1, total, warmup, final)
    values = [rate(step) for step in range(total + 1)]
    assert all(0 <= value <= 0.1 + 1e-12 for value in values)
    after = values[warmup:]
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(after))
