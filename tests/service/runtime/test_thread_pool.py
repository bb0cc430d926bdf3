import asyncio
import os
import threading

import pytest

from service.runtime.thread_pool import Workers


@pytest.fixture
def workers():
    made = Workers("test", 1)
    yield made
    made.close()


@pytest.mark.parametrize(("process", "thread"), [(0, 3), (15, 15)])
def test_a_thread_is_never_less_nice_than_its_process(monkeypatch, process, thread):
    found = []
    monkeypatch.setattr(os, "getpriority", lambda *_: process)
    monkeypatch.setattr(os, "setpriority", lambda _which, _who, nice: found.append(nice))
    workers = Workers("test", 1, nice=3)
    asyncio.run(_twice(workers))
    workers.close()
    assert found == [thread]


async def _twice(workers):
    assert await workers.submit(lambda: 1 + 1) == 2


def test_results_and_errors_come_back(workers):
    async def story():
        assert await workers.submit(lambda: 1 + 1) == 2
        with pytest.raises(ZeroDivisionError):
            await workers.submit(lambda: 1 / 0)

    asyncio.run(story())


def test_the_most_urgent_goes_first(workers):
    async def story():
        gate, order = threading.Event(), []
        first = workers.submit(gate.wait)
        jobs = [workers.submit(lambda n=n: order.append(n), urgency=n) for n in (3, 1, 2)]
        gate.set()
        await asyncio.gather(first, *jobs)
        assert order == [1, 2, 3]

    asyncio.run(story())


def test_a_cancelled_job_never_runs(workers):
    async def story():
        gate, ran = threading.Event(), []
        first = workers.submit(gate.wait)
        dropped = workers.submit(lambda: ran.append("dropped"))
        kept = workers.submit(lambda: ran.append("kept"))
        dropped.cancel()
        gate.set()
        await asyncio.gather(first, kept)
        assert ran == ["kept"]

    asyncio.run(story())


def test_closed_workers_take_nothing():
    async def story():
        workers = Workers("test", 1)
        workers.close()
        with pytest.raises(RuntimeError):
            workers.submit(lambda: None)

    asyncio.run(story())
