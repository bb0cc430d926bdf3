"""The one `openvino.Core` of a process."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openvino import Core


@cache
def core() -> Core:
    """Return the core; the first call loads the library.

    There is one per process and it is never freed. Its CPU plugin replaces the calling thread's
    alternate signal stack and puts the earlier one back when it is freed. With a second core the
    earlier one can be freed memory by then, and the next signal ends the process.
    """
    from openvino import Core

    return Core()
