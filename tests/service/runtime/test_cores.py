from hypothesis import given
from hypothesis import strategies as st

from service.runtime.cores import available_cores, plan_cores


@given(st.integers(1, 256), st.sampled_from(["torch", "openvino", "auto"]))
def test_everyone_gets_a_thread_and_the_operator_has_the_last_word(cores, engine):
    plan = plan_cores(cores, engine)
    assert plan.engine >= 1
    assert plan.decode >= 1
    if engine == "torch" and cores > 1:
        assert plan.engine + plan.decode <= cores
    assert plan_cores(cores, engine, engine_threads=3, decode_threads=5).engine == 3
    assert plan_cores(cores, engine, engine_threads=3, decode_threads=5).decode == 5


def test_there_is_at_least_one_core():
    assert available_cores() >= 1
