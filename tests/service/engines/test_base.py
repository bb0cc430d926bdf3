"""What engines have in common."""

from __future__ import annotations

from service.engines.base import batch_sizes


def test_batch_sizes():
    assert batch_sizes(1) == (1,)
    assert batch_sizes(8) == (1, 2, 4, 8)
    assert batch_sizes(12) == (1, 2, 4, 8, 12)
    assert batch_sizes(64) == (1, 2, 4, 8, 16, 24, 32, 48, 64)
    assert batch_sizes(128) == (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
