import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.evaluation.accuracy import Score, wilson
from training.evaluation.analysis import miss_and_hit
from training.report.markdown import accuracy_table, matrix_table, with_interval


def test_wilsons_interval_as_in_textbooks() -> None:
    assert wilson(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)


@given(n=st.integers(1, 5000), share=st.floats(0, 1))
def test_the_interval_holds_the_share(n: int, share: float) -> None:
    hits = round(share * n)
    low, high = wilson(hits, n)
    assert 0 <= low <= hits / n + 1e-12
    assert hits / n - 1e-12 <= high <= 1


def test_scores() -> None:
    score = Score(200, 100, 150)
    assert (score.top1, score.top5) == (0.5, 0.75)
    assert with_interval(score) == "50.0 ± 6.9"
    assert score.interval5[0] < 0.75 < score.interval5[1]


def test_missed_here_and_hit_there() -> None:
    first = torch.tensor([True, True, False, False, False])
    second = torch.tensor([True, False, True, True, False])
    read = torch.tensor([True, True, True, True, False])
    assert miss_and_hit([first, second], read) == [[0.0, 0.5], [0.25, 0.0]]


def test_tables_are_markdown_with_the_nearest_row_in_bold() -> None:
    scores = {(64, 64): Score(4, 3, 4), (64, 32): Score(4, 1, 4), (32, 32): Score(4, 2, 4)}
    assert accuracy_table(scores, (64, 32), (64, 32), {64: 64, 32: 32}) == (
        "| train \\ test | 64 | 32 |\n|---|---|---|\n"
        "| 64 | **75.00** | 25.00 |\n| 32 | - | **50.00** |\n"
    )
    assert "| a | 0.00 | 50.00 |" in matrix_table("x", ["a", "b"], [[0.0, 0.5], [0.25, 0.0]])
