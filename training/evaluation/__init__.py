"""Measuring a network."""
