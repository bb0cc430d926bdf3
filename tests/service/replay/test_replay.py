import json

import pytest

from san_core.preprocessing import ImageHeader
from service.replay.bound import clairvoyant
from service.replay.machine import HostModel, Machine, reference
from service.replay.recording import Recorder
from service.replay.running import POLICIES, replay
from service.replay.simulation import Job
from service.replay.traces import SCENARIOS, Arrival, faster, read, scenario
from service.request.request import Outcome, Request
from service.request.terms import Terms


def test_two_jobs_share_a_core_and_each_takes_twice_as_long():
    machine, ends = Machine(HostModel(cores=1, noise=0.0, spikes=0.0)), []
    for _ in range(2):
        machine.work(10.0, lambda: ends.append(machine.now))
    machine.run()
    assert ends == pytest.approx([20.0, 20.0])


def test_an_engine_with_two_threads_slows_down_beside_a_decoder():
    machine, ends = Machine(HostModel(cores=2, noise=0.0, spikes=0.0)), []
    machine.work(10.0, lambda: ends.append(machine.now), width=2.0)
    machine.work(100.0, lambda: None)
    machine.run()
    assert ends == pytest.approx([15.0])


@pytest.mark.parametrize("name", [*SCENARIOS, "mixed8-1"])
def test_scenarios_are_the_same_for_the_same_seed(name):
    trace = scenario(name, 1.0, seed=3)
    assert trace == scenario(name, 1.0, seed=3)
    assert [a.at_ms for a in trace] == sorted(a.at_ms for a in trace)


def test_an_unknown_scenario_is_named():
    with pytest.raises(ValueError, match="no scenario 'poison-1'"):
        scenario("poison-1")


@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_is_counted_once_whatever_the_policy(policy):
    trace = scenario("poisson-2", 1.0)
    result = replay(trace, policy)
    assert result.offered == len(trace) == result.refused + result.in_time + result.late
    assert result.per_offered == replay(trace, policy).per_offered


def test_nobody_beats_the_clairvoyant():
    measured, listings = reference()
    host = HostModel()
    for name in ("poisson-1", "poisson-4"):
        trace = scenario(name, 2.0)
        job = Job(Request("", Terms()), trace[0], ImageHeader("JPEG", 500, 375))
        bound = clairvoyant(trace, job, measured, listings, host)
        assert bound <= max(x.rank for x in listings) + 1e-9
        for policy in ("san-serve", "fixed-dropping"):
            assert replay(trace, policy).per_offered <= bound + 1e-9


def test_a_recording_is_read_back_without_names_or_pixels(tmp_path):
    path = tmp_path / "traffic.jsonl"
    recorder = Recorder(path)
    for n in range(3):
        made = Request("id", Terms(budget_ms=20.0), 1000.0 + 10 * n, client="key:secret")
        made.body_bytes, made.size, made.outcome = 123, (640, 480), Outcome.ANSWERED
        recorder(made)
    recorder.close()
    assert read(path) == [Arrival(10.0 * n, 20.0, 123, 640, 480, "client 0") for n in range(3)]
    assert "secret" not in path.read_text()
    assert json.loads(path.read_text().splitlines()[0])["outcome"] == "answered"


def test_more_traffic_is_the_same_in_less_time():
    trace = scenario("poisson-1", 1.0)
    assert faster(trace, 2.0)[-1].at_ms == trace[-1].at_ms / 2
