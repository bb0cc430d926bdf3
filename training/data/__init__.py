"""Images on disk to batches at every resolution."""
