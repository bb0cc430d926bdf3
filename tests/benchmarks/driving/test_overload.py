from benchmarks.driving.open_loop import Sample
from benchmarks.driving.overload import describe, recovery_s
from benchmarks.driving.wire import Answer


def sample(due: float, latency_ms: float = 10.0, status: int = 200) -> Sample:
    head = b"HTTP/1.1 200 OK\r\nx-san-resolution: 96\r\nx-san-budget-met: true"
    return Sample(due, latency_ms, status, 0.0, Answer(status, head, b"") if status > 0 else None)


def test_recovery_counts_from_the_load_s_end_to_answers_that_stay_in_time():
    late = [sample(1.0 + n / 100, latency_ms=500) for n in range(20)]
    once = [sample(1.20)]
    late_again = [sample(1.21, status=429)]
    good = [sample(1.22 + n / 100) for n in range(20)]
    assert recovery_s([*late, *once, *late_again, *good], 1.0) == 1.22 - 1.0


def test_never_in_time_is_never_recovered():
    assert recovery_s([sample(1.0 + n / 100, 500) for n in range(50)], 1.0) == float("inf")


def test_what_became_of_a_load_adds_up():
    samples = [sample(0), sample(0.1, 150), sample(0.2, 2, 429), sample(0.3, 1000, 0)]
    facts = describe(samples, 0.4)
    assert facts["offered_per_s"] == 10
    assert facts["answered"] == 0.5
    assert facts["refused"] == 0.25
    assert facts["in_time_of_all"] == 0.25
    assert facts["in_time_of_answered"] == 0.5
    assert facts["met_of_answered"] == 1.0
    assert facts["other_statuses"] == {0: 1}
    assert facts["refusal_p50"] == 2
    assert facts["resolutions"] == {96: 1.0}
