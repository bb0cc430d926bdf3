"""Keeping libtiff quiet.

It writes a line to standard error for every fault it finds in a file. Pillow
silences its warnings but not its errors, which come back as exceptions in any case.
"""

import ctypes

from PIL import _imaging


def silence() -> bool:
    """Take away libtiff's error handler; tell whether it could be found.

    The symbol is looked up through Pillow's own library, so it is that of the libtiff which Pillow
    runs: bundled in its wheel, or the system's. It is out of reach if linked in statically.
    """
    try:
        set_handler = ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler
    except (OSError, AttributeError):
        return False
    set_handler.argtypes, set_handler.restype = [ctypes.c_void_p], ctypes.c_void_p
    set_handler(None)
    return True
