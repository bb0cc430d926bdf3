"""What is said of a start: how far it is, and how long it will still take."""

import pytest

from service.serving.bundles.steps import STEPS, Steps


class Start:
    """Steps on a clock that a test moves."""

    def __init__(self):
        self.now = 1000.0
        self.steps = Steps(lambda: self.now)

    def after(self, ms):
        self.now += ms
        return self.steps.progress

    def next_step(self, after_ms=0.0):
        self.now += after_ms
        self.steps.begin()
        return self.steps.progress


@pytest.fixture
def start():
    return Start()


def test_nothing_is_known_before_the_first_step_is_done(start):
    assert start.steps.progress == (0, 4, None)
    assert "another service" in start.steps.doing
    assert start.next_step() == (0, 4, None)
    assert start.steps.doing == "loading the bundle"
    assert start.after(5000.0) == (0, 4, None)


def test_a_first_start_is_estimated_from_the_pace_of_the_steps_done(start):
    start.next_step()
    done, _, quick = start.next_step(after_ms=330.0)
    assert (done, quick) == (1, pytest.approx(0.7, abs=0.05))
    slow = Start()
    slow.next_step()
    assert slow.next_step(after_ms=3300.0).seconds_left == pytest.approx(10 * quick, rel=0.1)


def test_a_restart_is_estimated_from_the_last_start(start):
    start.next_step()
    start.steps.remember([300.0, 800.0, 600.0, 400.0])
    assert start.next_step(after_ms=2000.0) == (1, 4, 1.8)  # reading was slow: that says nothing
    assert start.after(500.0) == (1, 4, 1.3)
    assert start.next_step() == (2, 4, 1.0)
    assert start.next_step(after_ms=600.0) == (3, 4, 0.4)


def test_the_estimate_never_rises_within_a_step_and_is_never_negative(start):
    start.next_step()
    start.steps.remember([300.0, 800.0, 600.0, 400.0])
    said = [start.next_step().seconds_left]
    said += [start.after(300.0).seconds_left for _ in range(5)]
    assert said == [1.8, 1.5, 1.2, 1.0, 1.0, 1.0]  # late: the steps to come still take as long
    start.next_step()
    assert start.next_step().seconds_left == 0.4
    assert start.after(1000.0) == (3, 4, None)  # nothing is known of a last step that is late


def test_what_the_steps_took_is_kept(start):
    for ms in (0.0, 300.0, 800.0, 600.0):
        start.next_step(after_ms=ms)
    start.after(400.0)
    assert start.steps.end() == [300.0, 800.0, 600.0, 400.0]
    assert start.steps.doing == STEPS[-1]


def test_times_of_other_steps_are_not_used(start):
    start.next_step()
    start.steps.remember([300.0, 800.0])
    assert start.steps.progress == (0, 4, None)
