import asyncio

import numpy as np
import pytest

from san_core.frontier import OperatingPoint
from service.errors import ExpiredError
from service.latency.catalogue import Listing
from service.latency.curves import Curve, Measurements
from service.latency.model import LatencyModel
from service.request.request import Request
from service.request.terms import OnMiss, Terms
from service.scheduling.executor import Executor, _Executed, softmax
from service.scheduling.schedule import Schedule
from service.scheduling.scheduler import Scheduler
from tests.service.fakes import FakeClock, FakeNetwork, InlineWorkers

POINT = OperatingPoint(32)


class Stage:
    """An executor whose engine runs when told to."""

    def __init__(self, max_batch=4, in_flight=1):
        self.clock = FakeClock()
        self.workers = InlineWorkers(held=True)
        self.schedule = Schedule(1)
        curve = Curve((1, 8), (2.0, 9.0))
        self.model = LatencyModel(Measurements(curves={(32, "float"): curve}))
        self.network = FakeNetwork(POINT)
        self.scheduler = Scheduler(
            self.model, self.schedule, [Listing(POINT, 0.5, 0.5)], max_batch=max_batch
        )
        self.loop = Executor(
            self.workers,
            self.scheduler,
            self.clock,
            in_flight=in_flight,
            wants_late=self.schedule.wants_late,
        )

    def request(self, deadline=1000.0, late=True, images=1):
        on_miss = OnMiss.ANSWER if late else OnMiss.REFUSE
        made = Request("r", Terms(budget_ms=deadline, on_miss=on_miss), images=images)
        made.point, made.side = POINT, 32
        self.schedule.enter(made, self.clock())
        return made

    def submit(self, value=0, deadline=1000.0, late=True, network=None, images=1):
        pixels = [np.full((32, 32, 3), value + n, dtype=np.float32) for n in range(images)]
        run = self.loop.run(self.request(deadline, late, images), pixels, network or self.network)
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
        assert len(stage.schedule) == 0
        assert stage.loop.is_idle

    asyncio.run(story())


def test_an_engine_that_takes_two_batches_gets_the_second_while_the_first_runs():
    async def story():
        stage = Stage(in_flight=2)
        stage.network.clock, stage.network.takes_ms = stage.clock, 2.0
        first = stage.submit(0)
        await settle()
        one_ms = stage.schedule.running_ms(stage.clock())
        second = stage.submit(1)
        await settle()
        third = [stage.submit(n) for n in (2, 3)]
        await settle()
        assert len(stage.workers.jobs) == 2  # two are in the engine; the others wait
        assert stage.loop.depth == 2
        # The second begins when the first is done.
        assert stage.schedule.running_ms(stage.clock()) > 1.5 * one_ms
        for _ in range(3):
            stage.workers.run_next()
            await settle()
        found = await asyncio.gather(first, second, *third)
        assert stage.network.batches == [1, 1, 2]
        assert [int(ran.scores.argmax()) for ran in found] == [0, 1, 2, 3]
        assert stage.loop.is_idle

    asyncio.run(story())


def test_a_batch_that_waited_inside_the_engine_is_not_taken_for_a_slow_one():
    async def story():
        stage = Stage(in_flight=2)
        learnt = []
        stage.scheduler.learn = lambda plan, run: learnt.append(run)
        requests = [stage.request() for _ in range(2)]
        pixels = [np.zeros((32, 32, 3), dtype=np.float32)]
        for request in requests:
            asyncio.create_task(stage.loop.run(request, pixels, stage.network))  # noqa: RUF006
        await settle()
        # Both were handed over at once; each computes for 3 ms, one after the other.
        (_, _, one), (_, _, other) = stage.workers.jobs
        logits = np.zeros((1, 4), dtype=np.float32)
        for place, future in enumerate((one, other)):
            future.set_result(_Executed(logits, logits, 10.0, 10.0, 13.0 + 3.0 * place))
        await settle()
        assert learnt == [(10.0, 13.0), (13.0, 16.0)]
        assert [request.timing.forward for request in requests] == [3.0, 3.0]
        assert [request.timing.queue for request in requests] == [10.0, 13.0]

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
        assert (await fine).logits.shape == (1, 4)

    asyncio.run(story())


def test_the_model_learns_from_the_engine():
    async def story():
        stage = Stage()
        stage.network.clock, stage.network.takes_ms = stage.clock, 50.0
        assert stage.model.forward_ms((32, "float")) == pytest.approx(2.0)
        own = stage.submit(0)
        await settle()
        stage.workers.run_next()
        await own
        assert stage.model.forward_ms((32, "float")) > 2.0

    asyncio.run(story())


def test_the_images_of_one_request_run_together_in_as_many_batches_as_they_need():
    async def story():
        stage = Stage(max_batch=4)
        several = stage.submit(0, images=6)
        await settle()
        stage.workers.run_next()
        ran = await several
        assert stage.network.batches == [4, 2]
        assert ran.scores.argmax(axis=1).tolist() == [0, 1, 2, 3, 0, 1]

    asyncio.run(story())


def test_softmax_survives_large_logits():
    scores = softmax(np.array([[1000.0, 999.0], [-1000.0, -1000.0]], dtype=np.float32))
    assert np.isfinite(scores).all()
    assert scores.sum(axis=1) == pytest.approx([1, 1])
