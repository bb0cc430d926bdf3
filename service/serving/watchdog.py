"""Notices an engine that will not answer again: its device is lost, or a batch hangs in it."""

from __future__ import annotations

from service.engines.base import Engine, lost
from service.errors import EngineLostError
from service.runtime.thread_pool import Workers

HANGS_S = 30.0
"""A batch takes milliseconds, and a hung kernel never raises."""


def verdict(engine: Engine | None, engine_thread: Workers) -> EngineLostError | None:
    """Why the engine is given up; None while all is well."""
    if engine is not None and (error := lost(engine)):
        return error
    busy_s = engine_thread.longest_s()
    if busy_s > HANGS_S:
        return EngineLostError(
            f"A batch has been running for {busy_s:.0f} s; the device hangs and the service "
            "restarts."
        )
    return None
