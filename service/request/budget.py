"""A request's budget: from the first byte received to the answer's first byte sent."""

from dataclasses import dataclass


@dataclass(slots=True)
class Budget:
    """What the client allows, on the service's clock."""

    started_ms: float
    """When the first byte arrived."""
    limit_ms: float | None
    """What the client allows; None if it did not say."""
    patience_ms: float
    """What the service allows a request without a limit, or one that is late anyway."""

    @property
    def allowed_ms(self) -> float:
        """The limit, or the service's patience where there is none."""
        return self.patience_ms if self.limit_ms is None else self.limit_ms

    @property
    def deadline_ms(self) -> float:
        """When the answer is due."""
        return self.started_ms + self.allowed_ms

    def spent_ms(self, now_ms: float) -> float:
        """Time gone since the first byte."""
        return max(0.0, now_ms - self.started_ms)

    def left_ms(self, now_ms: float) -> float:
        """Time left until the deadline; negative once it passed."""
        return self.deadline_ms - now_ms

    def met(self, now_ms: float) -> bool:
        """Whether an answer sent now is in time; always so without a limit."""
        return self.limit_ms is None or self.spent_ms(now_ms) <= self.limit_ms
