"""Whether and when to try again: a pure function that never waits past the deadline."""

from __future__ import annotations

from dataclasses import dataclass

from san_client.errors import ConnectionFailedError, SanClientError


@dataclass(frozen=True, slots=True)
class Retries:
    """How often, and how patiently."""

    attempts: int = 3
    """Attempts at most, the first included; 1 never tries again."""
    first_pause_ms: float = 25.0
    """Doubled with each attempt, unless the service says when to come back."""
    longest_pause_ms: float = 2000.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.first_pause_ms < 0 or self.longest_pause_ms < 0:
            raise ValueError("attempts must be at least 1, and pauses not negative")


def pause_ms(
    retries: Retries, attempt: int, error: SanClientError, left_ms: float, chance: float
) -> float | None:
    """How long to wait after attempt number `attempt` failed; None: give up.

    `chance` (0 to 1) spreads clients that were refused together.
    """
    if not error.temporary or attempt >= retries.attempts:
        return None
    told = error.retry_after_ms
    if told is not None:
        pause = told * (1 + 0.1 * chance)
    elif isinstance(error, ConnectionFailedError) and attempt == 1:
        pause = 0.0  # most likely an idle connection that the other side had closed
    else:
        grown = retries.first_pause_ms * 2.0 ** (attempt - 1)
        pause = min(grown, retries.longest_pause_ms) * (0.5 + 0.5 * chance)
    return pause if pause < left_ms else None
