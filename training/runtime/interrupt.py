"""Ctrl-C and SIGTERM as a request to stop after the current step."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_GRACE = 30
"""Seconds that a loader process lives on after SIGTERM."""


class StopRequest:
    """Whether the run was asked to stop."""

    def __init__(self) -> None:
        self.requested = False


@contextlib.contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Turn the first signal into a request; the second one interrupts at once."""
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_signals_to_parent(_worker: int, grace: int = _GRACE) -> None:
    """In a loader process: signals to the whole group are the parent's business.

    It still needs batches for the step it is in, and ends its loaders itself. That it does with
    SIGTERM too, so a loader may outlive one by seconds but must not ignore it for good: the parent
    would never stop waiting for it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: signal.alarm(grace))
