import numpy as np
import pytest

from benchmarks.driving.arrivals import Arrivals, schedule


@pytest.mark.parametrize("kind", Arrivals)
def test_the_rate_is_exact_and_the_times_repeat(kind):
    times = schedule(kind, 200, 3, seed=1)
    assert len(times) == 600
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] < 3
    assert times == schedule(kind, 200, 3, seed=1)
    assert times != schedule(kind, 200, 3, seed=2)


@pytest.mark.parametrize(("kind", "variation"), [(Arrivals.POISSON, 1.0), (Arrivals.BURSTY, 4.0)])
def test_gaps_vary_as_they_should(kind, variation):
    gaps = np.diff(schedule(kind, 50_000, 1, seed=3))
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(variation, rel=0.1)
