import pytest

from service.errors import (
    OutdatedFeedbackError,
    ParameterError,
    RepeatedFeedbackError,
    UnknownFeedbackError,
)
from service.serving.quality.feedback import FeedbackStore, Remembered, resolve_truth


def test_the_store_is_bounded_and_exact():
    store = FeedbackStore(2)
    for name in ("a", "b", "c"):
        store.remember(name, Remembered(64, ("m", "1"), (3, 1)))
    assert len(store) == 2
    with pytest.raises(UnknownFeedbackError):
        store.judge("a", frozenset({3}), ("m", "1"))
    with pytest.raises(OutdatedFeedbackError, match="by m 1, and m 2 serves now"):
        store.judge("b", frozenset({1}), ("m", "2"))
    judged = store.judge("b", frozenset({1}), ("m", "1"))
    assert (judged.correct, judged.in_top5) == (False, True)
    with pytest.raises(RepeatedFeedbackError):
        store.judge("b", frozenset({1}), ("m", "1"))


def test_a_misspelt_class_is_answered_with_the_likely_one():
    with pytest.raises(ParameterError, match="'golden retriver'; did you mean 'golden retriever'"):
        resolve_truth(("crane", "golden retriever"), label="golden retriver", index=None)


def test_classes_that_share_a_name_are_all_the_truth():
    classes = ("crane", "boat", "crane")
    assert resolve_truth(classes, label="crane", index=None) == {0, 2}
    assert resolve_truth(classes, label=None, index=1) == {1}
    for wrong in (
        {"label": "x", "index": None},
        {"label": None, "index": 3},
        {"label": None, "index": None},
        {"label": "boat", "index": 1},
    ):
        with pytest.raises(ParameterError):
            resolve_truth(classes, **wrong)
