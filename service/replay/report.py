"""Results as a table and a plot for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from service.replay.simulation import Result

_HEAD = ("policy", "accuracy/offered", "in time", "refused", "kept", "p50 ms", "p99 ms", "batch")
_WIDTH = 50


def rows(results: Mapping[str, Result]) -> list[tuple[str, ...]]:
    """One row per policy."""
    return [
        (
            name,
            f"{r.per_offered:.3f}",
            f"{100 * r.in_time / max(1, r.offered):.1f} %",
            f"{100 * r.refused / max(1, r.offered):.1f} %",
            f"{100 * r.kept:.1f} %",
            f"{r.percentile(0.5):.1f}",
            f"{r.percentile(0.99):.1f}",
            f"{r.mean_batch:.1f}",
        )
        for name, r in results.items()
    ]


def table(results: Mapping[str, Result], first: str = _HEAD[0]) -> str:
    """Columns of equal width."""
    lines = [(first, *_HEAD[1:]), *rows(results)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEAD))]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def plot(results: Mapping[str, Result]) -> str:
    """Accuracy in time per offered request as bars."""
    longest = max(map(len, results))
    return "\n".join(
        f"{name.ljust(longest)}  {'█' * round(_WIDTH * r.per_offered)} {r.per_offered:.3f}"
        for name, r in results.items()
    )
