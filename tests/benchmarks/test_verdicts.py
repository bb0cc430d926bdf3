"""What the benchmarks that print a verdict make of figures that are known."""

import random
from collections import Counter

import pytest

from benchmarks import answer_cache, fleet, ray_routing, rollout


def rounds(cost_ms: float, noise: float, number: int = 6) -> list[list[tuple[float, float]]]:
    """Pairs as of services of 5 ms, one of which costs so much more."""
    chance = random.Random(1)
    return [
        [
            (5 * chance.lognormvariate(0, noise), 5 * chance.lognormvariate(0, noise) + cost_ms)
            for _ in range(200)
        ]
        for _ in range(number)
    ]


@pytest.mark.parametrize(
    ("cost_ms", "noise", "word"),
    [(0.0, 0.05, "held"), (0.25, 0.05, "NOT HELD"), (0.05, 0.3, "NOT DECIDED")],
)
def test_the_cost_of_a_miss_is_only_judged_where_it_can_be_told(cost_ms, noise, word):
    low, high = answer_cache.interval(rounds(cost_ms, noise), draws=200)
    assert low <= cost_ms / 5 <= high
    assert answer_cache.verdict(low, high).startswith(f"{word}:")


def test_processes_that_differ_from_round_to_round_widen_the_interval():
    alike = rounds(0.0, 0.01)
    apart = [[(a, b * (1.02 if i % 2 else 0.98)) for a, b in r] for i, r in enumerate(alike)]
    low, high = answer_cache.interval(alike, draws=200)
    wider_low, wider_high = answer_cache.interval(apart, draws=200)
    assert wider_high - wider_low > 5 * (high - low)


def test_fewer_promises_are_told_from_as_many():
    assert rollout.not_worse((1000, 990), (1000, 990))
    assert rollout.not_worse((1000, 990), (1000, 985))
    assert not rollout.not_worse((1000, 990), (1000, 960))
    assert rollout.not_worse((100, 100), (100, 99))


def test_a_refusal_is_no_answer_in_time_and_nothing_may_be_lost_silently():
    outcomes = Counter({"in time": 97, "late": 3, "429": 50, "503": 2})
    assert ray_routing.Seen(outcomes).kept == 97 / 152
    assert ray_routing.Seen(outcomes).lost == 0
    assert ray_routing.Seen(outcomes + Counter({"ReadTimeout": 1, "ReadError": 1})).lost == 2


@pytest.mark.parametrize(
    ("gains", "word"),
    [
        ((1.11, 1.12, 1.11, 1.12), "held"),
        ((1.05, 1.06, 1.07), "NOT HELD"),
        ((1.05, 1.2), "NOT DECIDED"),
        ((1.2,), "NOT DECIDED"),
    ],
)
def test_a_gain_is_only_judged_where_the_seeds_agree(gains, word):
    assert fleet.verdict(*fleet.interval(gains)).startswith(f"{word}:")


def test_a_simulated_fleet_is_played_as_a_replay_plays_it():
    run = ("bursty-1", "all alike", "headroom", 11, 0.3, 2)
    assert 0.3 < fleet.play(run) == fleet.play(run) < 0.75
