"""Memory that was let go, given back to the system."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress


def trim() -> None:
    """Give back what building networks left behind; glibc would keep it for the next time."""
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
