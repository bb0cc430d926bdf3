"""Benchmarks: one command each, results as JSON, Markdown and plots under `results/`."""
