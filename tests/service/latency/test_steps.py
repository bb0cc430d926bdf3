"""The curve of an engine that pads its batches."""

from service.latency.curves import Curve
from service.latency.measurement import in_steps


def test_a_padded_batch_costs_what_the_next_size_costs():
    curve = in_steps(Curve((1, 2, 4, 16), (1.0, 1.5, 2.0, 6.0)))
    assert [curve.at(n) for n in (1, 2, 3, 4, 5, 9, 16)] == [1.0, 1.5, 2.0, 2.0, 6.0, 6.0, 6.0]
    assert curve.at(32) == 12.0
