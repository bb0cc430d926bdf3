"""Waiting for what real processes must do sooner or later."""

import time

import httpx

PATIENCE_S = 180


def until(holds, process=None, log=lambda: ""):
    """Ask until it holds; a process that has ended, or patience that has, fails with its log."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if holds():
                return
        except httpx.TransportError:
            pass  # not listening yet
        assert process is None or process.poll() is None, log()
        assert time.monotonic() < deadline, log()
        time.sleep(0.05)
