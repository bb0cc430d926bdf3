"""Scale encoding (section 3.1 of the paper)."""


def encode(resolution: float) -> float:
    """Return eps = 0.1 * T / 32, the scalar that every meta learner is fed."""
    return 0.1 * resolution / 32
