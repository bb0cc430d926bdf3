import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from san_core.mode import Mode
from service.errors import ParameterError
from service.request.terms import MAX_BUDGET_MS, PARAMETERS, OnMiss, Terms, parse_terms


def test_nothing_given_is_the_default():
    assert parse_terms([]) == Terms()


def test_everything_is_read():
    query = [
        ("budget_ms", "12.5"),
        ("resolution", "96"),
        ("mode", "data_free"),
        ("min_accuracy", "0.5"),
        ("top_k", "3"),
        ("on_miss", "refuse"),
        ("precision", "int8"),
    ]
    assert parse_terms(query) == Terms(12.5, 96, Mode.DATA_FREE, 0.5, 3, OnMiss.REFUSE, "int8")


def test_the_header_gives_the_budget_unless_the_query_does():
    assert parse_terms([], "7").budget_ms == 7
    assert parse_terms([("budget_ms", "9")], "7").budget_ms == 9


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("budget_ms", "0"),
        ("budget_ms", "-1"),
        ("budget_ms", "nan"),
        ("budget_ms", "inf"),
        ("budget_ms", "1_0"),
        ("budget_ms", ""),
        ("budget_ms", "600001"),
        ("resolution", "31"),
        ("resolution", "1025"),
        ("resolution", "96.0"),
        ("resolution", "٩٦"),
        ("resolution", "9" * 5000),
        ("mode", "PROXY"),
        ("min_accuracy", "1.1"),
        ("min_accuracy", "-0.1"),
        ("top_k", "0"),
        ("top_k", "1001"),
        ("top_k", "five"),
        ("on_miss", "wait"),
    ],
)
def test_what_cannot_be_used_is_named(name, value):
    with pytest.raises(ParameterError) as caught:
        parse_terms([(name, value)])
    assert caught.value.parameter == name
    assert len(str(caught.value)) < 200


def test_a_misspelt_parameter_is_not_ignored():
    with pytest.raises(ParameterError, match="did you mean budget_ms"):
        parse_terms([("budget", "20")])


def test_a_repeated_parameter_is_refused():
    with pytest.raises(ParameterError, match="more than once"):
        parse_terms([("top_k", "1"), ("top_k", "2")])


@given(st.lists(st.tuples(st.sampled_from([*PARAMETERS, "x"]), st.text(max_size=12)), max_size=4))
def test_any_text_gives_usable_terms_or_a_parameter_error(query):
    try:
        terms = parse_terms(query)
    except ParameterError:
        return
    assert terms.budget_ms is None or 0 < terms.budget_ms <= MAX_BUDGET_MS
    assert terms.min_accuracy is None or 0 <= terms.min_accuracy <= 1
    assert 1 <= terms.top_k <= 1000
    assert terms.resolution is None or math.isfinite(terms.resolution)
