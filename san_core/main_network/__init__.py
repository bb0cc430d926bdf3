"""One main network made ready to run: folded, quantised, exported, or generated without torch."""
