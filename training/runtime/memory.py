"""Freed memory kept by the process, which a training loop on the CPU asks for again at once."""

import ctypes
import sys

# From glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_LARGE, _PAD = 2**31 - 1, 2**28
"""The largest value that it takes, which means never; what it asks the system for at a time."""


def keep_freed_memory() -> bool:
    """Tell glibc not to return activations to the system after every layer.

    It does by default, and every step then faults the same gigabytes in again: up to twice the
    time. Returns whether the C library could be told.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False  # another C library, such as musl
    settings = ((_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, _LARGE), (_TOP_PAD, _PAD))
    return all(mallopt(option, value) == 1 for option, value in settings)
