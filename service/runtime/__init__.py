"""What the process runs on: time, threads, cores."""
