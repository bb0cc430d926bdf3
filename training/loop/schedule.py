"""The learning rate as a pure function of the step."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class HalfCosine:
    """Linear warm-up, then half a cosine from `peak` to `final` (paper, Section 4.1)."""

    peak: float
    total_steps: int
    warmup_steps: int = 0
    final: float = 0.0

    def __call__(self, step: int) -> float:
        """Return the learning rate of step 0 … total_steps - 1."""
        if step < self.warmup_steps:
            return self.peak * (step + 1) / self.warmup_steps
        span = max(1, self.total_steps - self.warmup_steps)
        progress = min(1.0, (step - self.warmup_steps) / span)
        return self.final + 0.5 * (self.peak - self.final) * (1.0 + math.cos(math.pi * progress))
