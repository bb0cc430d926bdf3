import multiprocessing
import os
import signal
import time
from multiprocessing.synchronize import Event

from training.runtime.interrupt import leave_signals_to_parent, stop_on_signal


def work(started: Event, go_on: Event, alive: Event) -> None:
    leave_signals_to_parent(0, grace=1)
    started.set()
    go_on.wait(60)
    alive.set()
    time.sleep(60)


def test_a_loader_outlives_sigterm_for_a_while_and_not_for_ever() -> None:
    context = multiprocessing.get_context("spawn")
    started, go_on, alive = context.Event(), context.Event(), context.Event()
    process = context.Process(target=work, args=(started, go_on, alive), daemon=True)
    process.start()
    assert process.pid is not None
    try:
        assert started.wait(60)
        os.kill(process.pid, signal.SIGINT)
        go_on.set()
        assert alive.wait(60)
        process.terminate()
        process.join(60)
        assert process.exitcode == -signal.SIGALRM
    finally:
        process.kill()
        process.join()


def test_the_first_signal_is_a_request() -> None:
    with stop_on_signal() as stop:
        assert not stop.requested
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
