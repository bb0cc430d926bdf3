import asyncio

import numpy as np
import pytest

from san_core.frontier import OperatingPoint
from service.errors import ExpiredError
from service.latency.model import Curve, LatencyModel, Measurements
from service.scheduling.executor import EngineLoop, softmax
from service.scheduling.load import Load, Promise
from tests.service.fakes import FakeClock, FakeNetwork, InlineWorkers

POINT = OperatingPoint(32)


class Stage:
    """An engine loop whose engine runs when told to."""

    def __init__(self, max_batch=4):
        self.clock = FakeClock()
        self.workers = InlineWorkers(held=True)
        self.load = Load(1)
        curve = Curve((1, 8), (2.0, 9.0))
        self.model = LatencyModel(Measurements(curves={(32, "float"): curve}))
        self.network = FakeNetwork(POINT)
        self.loop = EngineLoop(
            self.workers,
            self.model,
            self.load,
            self.clock,
            max_batch=max_batch,
            window_ms=0.0,
            quantile=0.99,
        )

    def submit(self, value=0, deadline=100.0, late=True, network=None, learn=True):
        promise = self.load.enter(Promise(deadline, point=POINT, forward_ms=2, decode_ms=0))
        pixels = np.full((32, 32, 3), value, dtype=np.float32)
        run = self.loop.run(
            network or self.network, pixels, promise, answer_late=lambda: late, learn=learn
        )
        return asyncio.create_task(run)


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def test_who_waits_while_the_engine_runs_goes_together_and_gets_their_own_answer():
    async def story():
        stage = Stage()
        first = stage.submit(0)
        await settle()
        others = [stage.submit(n) for n in (1, 2, 3)]
        await settle()
        stage.clock.advance(5)
        stage.workers.run_next()
        await settle()
        stage.workers.run_next()
        found = await asyncio.gather(first, *others)
        assert stage.network.batches == [1, 3]
        assert [int(ran.scores.argmax()) for ran in found] == [0, 1, 2, 3]
        assert [ran.batch for ran in found] == [1, 3, 3, 3]
        assert found[1].queue_ms == 5
        assert len(stage.load) == 0
        assert stage.loop.is_idle

    asyncio.run(story())


def test_a_caller_who_leaves_does_not_kill_the_batch():
    async def story():
        stage = Stage()
        first = stage.submit(0)
        await settle()
        leaving, staying = stage.submit(1), stage.submit(2)
        await settle()
        leaving.cancel()
        await settle()
        stage.workers.run_next()
        await settle()
        stage.workers.run_next()
        assert int((await staying).scores.argmax()) == 2
        await first
        assert stage.network.batches == [1, 1]

    asyncio.run(story())


def test_a_caller_who_leaves_during_the_run_does_not_either():
    async def story():
        stage = Stage()
        leaving = stage.submit(1)
        await settle()
        leaving.cancel()
        await settle()
        after = stage.submit(2)
        stage.workers.run_next()
        await settle()
        stage.workers.run_next()
        assert int((await after).scores.argmax()) == 2

    asyncio.run(story())


def test_who_expires_in_the_queue_is_refused_without_running():
    async def story():
        stage = Stage()
        first = stage.submit(0)
        await settle()
        doomed = stage.submit(1, deadline=10.0, late=False)
        await settle()
        stage.clock.advance(20)
        stage.workers.run_next()
        with pytest.raises(ExpiredError) as caught:
            await doomed
        assert caught.value.headers()["Retry-After"] == "1"
        await first
        assert stage.network.batches == [1]

    asyncio.run(story())


def test_an_engine_error_reaches_everyone_in_the_batch_and_the_loop_goes_on():
    async def story():
        stage = Stage()
        stage.network.error = RuntimeError("device lost")
        broken = stage.submit(0)
        await settle()
        stage.workers.run_next()
        with pytest.raises(RuntimeError, match="device lost"):
            await broken
        stage.network.error = None
        fine = stage.submit(1)
        await settle()
        stage.workers.run_next()
        assert (await fine).batch == 1

    asyncio.run(story())


def test_the_model_learns_from_the_engine_but_not_from_a_stand_in():
    async def story():
        stage = Stage()
        stage.network.clock, stage.network.takes_ms = stage.clock, 50.0
        standin = stage.submit(0, learn=False)
        await settle()
        stage.workers.run_next()
        await standin
        assert stage.model.forward_ms((32, "float"), 1, 0.99, 1e3) == pytest.approx(2.0)
        own = stage.submit(0, deadline=1000.0)
        await settle()
        stage.workers.run_next()
        await own
        assert stage.model.forward_ms((32, "float"), 1, 1.0, 2e3) == pytest.approx(50.0)

    asyncio.run(story())


def test_softmax_survives_large_logits():
    scores = softmax(np.array([[1000.0, 999.0], [-1000.0, -1000.0]], dtype=np.float32))
    assert np.isfinite(scores).all()
    assert scores.sum(axis=1) == pytest.approx([1, 1])
