"""Deciding: admission, the operating point, the next batch."""
