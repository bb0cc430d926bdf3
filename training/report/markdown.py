"""Markdown tables in the shape of the paper's."""

from collections.abc import Mapping, Sequence

from training.evaluation.accuracy import Score


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def percent(share: float) -> str:
    """Write a share as the paper does."""
    return f"{100 * share:.2f}"


def with_interval(score: Score) -> str:
    """Write a score with half the width of its 95 % interval."""
    low, high = score.interval1
    return f"{100 * score.top1:.1f} ± {50 * (high - low):.1f}"


def accuracy_table(
    scores: Mapping[tuple[int, int], Score],
    rows: Sequence[int],
    tests: Sequence[int],
    shaded: Mapping[int, int],
) -> str:
    """Write Table 1's shape; bold is where the row is S(T) of the column, the paper's shade."""
    body = []
    for row in rows:
        cells = []
        for test in tests:
            score = scores.get((row, test))
            text = percent(score.top1) if score else "-"
            cells.append(f"**{text}**" if shaded.get(test) == row else text)
        body.append([str(row), *cells])
    return table(["train \\ test", *map(str, tests)], body)


def matrix_table(corner: str, names: Sequence[str], matrix: Sequence[Sequence[float]]) -> str:
    """Write a square matrix of shares in percent."""
    body = [
        [name, *(percent(value) for value in row)] for name, row in zip(names, matrix, strict=True)
    ]
    return table([corner, *names], body)
