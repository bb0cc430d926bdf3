from service.request.budget import Budget


def test_the_clock_starts_at_the_first_byte():
    budget = Budget(started_ms=100.0, limit_ms=20.0, patience_ms=1000.0)
    assert budget.spent_ms(105.0) == 5.0
    assert budget.left_ms(105.0) == 15.0
    assert budget.deadline_ms == 120.0
    assert budget.met(120.0)
    assert not budget.met(120.1)


def test_without_a_limit_patience_is_the_deadline_and_every_answer_is_in_time():
    budget = Budget(started_ms=100.0, limit_ms=None, patience_ms=1000.0)
    assert budget.deadline_ms == 1100.0
    assert budget.met(5000.0)


def test_a_clock_read_before_the_first_byte_spends_nothing():
    assert Budget(100.0, 20.0, 1000.0).spent_ms(99.0) == 0.0
