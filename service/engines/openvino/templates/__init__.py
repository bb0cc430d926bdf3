"""Graphs of common architectures, so that serving them needs no torch."""
