"""Promise and overload: the service's own scheduler on a virtual clock and a model of a machine.

What is tested is the reasoning and not the machine that runs the test.
"""

from dataclasses import replace

import pytest

from service.replay.machine import HostModel, reference
from service.replay.policies import Ours
from service.replay.simulation import Result, Simulation
from service.replay.traces import UNIT_PER_S, Arrival, gamma, scenario

TWO_CORES = HostModel()


def replayed(trace, seed=1, host=TWO_CORES, events=()):
    measured, listings = reference()
    policy = Ours(measured, listings, host)
    simulation = Simulation(policy, host, measured, listings, seed)
    for at, change in events:
        simulation.machine.at(
            at,
            lambda change=change: setattr(
                simulation.machine, "host", replace(simulation.machine.host, **change)
            ),
        )
    result = simulation.run(trace)
    return result, policy.scheduler


@pytest.mark.parametrize("name", ["poisson-0.25", "gamma4-0.25"])
def test_a_light_load_gets_the_best_resolution(name):
    light, _ = replayed(scenario(name, 10))
    assert light.refused == 0
    assert light.late <= 0.01 * light.offered
    assert light.used[224] > 0.95 * light.offered


@pytest.mark.parametrize("seed", [1, 2])
def test_twice_what_a_fixed_server_holds_is_met_at_a_lower_resolution(seed):
    heavy, _ = replayed(scenario("poisson-2", 5, seed), seed)
    assert heavy.in_time >= 0.9 * heavy.offered
    assert heavy.kept >= 0.98
    assert sum(n for t, n in heavy.used.items() if t < 224) > 0.05 * heavy.offered


FLOOD_PER_S = 1490.0
"""Twice what two cores can answer at the smallest resolution."""


def flooded(seed, before_s=1.0, flood_s=3.0):
    """A service that has seen load, then a flood."""
    before = scenario("poisson-2", before_s, seed)
    flood = gamma(FLOOD_PER_S, flood_s, 1.0, seed)
    return [*before, *(Arrival(1000 * before_s + at) for at in flood)]


def test_a_flood_is_refused_quickly_and_what_is_admitted_is_in_time():
    late = in_time = 0
    for seed in range(1, 5):
        flood, scheduler = replayed(flooded(seed), seed)
        assert flood.refused > 0.4 * flood.offered
        assert flood.in_time > 500 * 4  # it goes on answering as fast as the stations can
        # Load alone never drives the choice below the floor.
        floor = scheduler.table(1e9).floor.listing.point.resolution
        assert sum(n for t, n in flood.used.items() if t < floor) <= 0.02 * flood.in_time
        late, in_time = late + flood.late, in_time + flood.in_time
    assert in_time / (in_time + late) >= 0.99


def test_it_recovers_within_a_second_of_the_loads_end():
    flood = scenario("poisson-10", 3)
    after, _ = replayed([*flood, *(Arrival(4000.0 + 20 * n) for n in range(100))])
    late, _ = replayed(flood)
    assert after.used[224] - late.used[224] >= 95


@pytest.mark.parametrize("seed", [1, 2])
def test_a_slow_spell_is_forgotten_within_a_second_of_its_end(seed):
    """Everything takes four times as long under load, then the neighbour leaves."""
    burst = [Arrival(at, 300.0) for at in gamma(2 * UNIT_PER_S, 3, 1.0, seed)]
    quiet = [Arrival(3500.0 + 20 * n, 25.0) for n in range(150)]
    result, _ = replayed(
        [*burst, *quiet], seed, HostModel(pace=4.0), events=[(3200.0, {"pace": 1.0})]
    )
    only_burst, _ = replayed(burst, seed, HostModel(pace=4.0))
    assert result.used[224] - only_burst.used[224] >= 90


def test_the_share_of_promises_kept_is_the_one_promised():
    for name in ("poisson-1.5", "gamma4-2"):
        _, scheduler = replayed(scenario(name, 6))
        kept = scheduler.calibration
        assert kept.kept >= 0.98 * kept.promised


def test_a_polite_client_does_not_suffer_from_a_greedy_one():
    polite, greedy = Result(), Result()
    for seed in range(1, 3):
        result, _ = replayed(scenario("greedy-10", 10, seed), seed)  # and a fifth of 1x, politely
        polite.add(result.clients["polite"])
        greedy.add(result.clients["greedy"])
    assert polite.in_time >= 0.99 * polite.offered
    assert polite.per_offered >= 0.70
    assert greedy.refused > 0.5 * greedy.offered
    assert greedy.in_time > 500 * 20


def test_where_decoding_is_the_queue_the_resolution_stays():
    """An engine of its own that takes no time: what waits, waits for a decoder."""
    host = HostModel(cores=2, engine_threads=0, decode_threads=1)
    measured, _ = reference()
    trace = [Arrival(at) for at in gamma(3.5 * UNIT_PER_S, 4, 1.0, 1)]
    measured.curves = {
        shape: replace(curve, ms=(0.4,) * len(curve.ms)) for shape, curve in measured.curves.items()
    }
    _, listings = reference()
    policy = Ours(measured, listings, host)
    simulation = Simulation(policy, host, measured, listings)
    result = simulation.run(trace)
    assert result.used[224] >= 0.95 * sum(result.used.values())


@pytest.mark.parametrize("name", ["poisson-4", "mixed-2", "sizes-1"])
def test_nothing_is_left_behind(name):
    result, scheduler = replayed(scenario(name, 3))
    assert len(scheduler.schedule) == 0
    assert len(scheduler) == 0
    assert result.offered == result.refused + result.in_time + result.late
