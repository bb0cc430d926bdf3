"""What a run has around it: processes, signals, memory."""
