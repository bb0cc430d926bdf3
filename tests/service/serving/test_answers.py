"""Pictures that were seen before."""

import hashlib

import numpy as np
import pytest

from san_core.frontier import OperatingPoint
from service.serving.answers import AnswerCache, Known

PICTURE = b"a picture" * 100


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def cache(now):
    return AnswerCache(10_000, 60.0, lambda: now[0])


def answer(accuracy=0.7, bundle="b"):
    scores = np.zeros(10, np.float32)
    return Known(bundle, OperatingPoint(96), accuracy, scores, scores)


def test_a_picture_seen_again_is_known(cache):
    assert cache.find(PICTURE, "b", lambda: 0.0) is None
    known = answer()
    cache.put(PICTURE, known)
    assert cache.find(PICTURE, "b", lambda: 0.7) is known
    assert (cache.facts.hits, cache.facts.misses) == (1, 1)


@pytest.mark.parametrize("changed", [PICTURE + b"!", PICTURE[:100] + b"?" + PICTURE[101:]])
def test_another_picture_is_not_taken_for_it(cache, changed):
    cache.put(PICTURE, answer())
    assert cache.find(changed, "b", lambda: 0.0) is None


def test_a_budget_that_buys_more_is_not_given_less(cache):
    cache.put(PICTURE, answer(0.5))
    assert cache.find(PICTURE, "b", lambda: 0.7) is None
    cache.put(PICTURE, answer(0.7))
    cache.put(PICTURE, answer(0.5))  # a worse one does not replace it
    assert cache.find(PICTURE, "b", lambda: 0.7).accuracy == 0.7


def test_answers_belong_to_their_bundle_and_grow_old(cache, now):
    cache.put(PICTURE, answer())
    assert cache.find(PICTURE, "new", lambda: 0.0) is None
    cache.put(PICTURE, answer(0.2, "new"))
    assert cache.find(PICTURE, "new", lambda: 0.0) is not None
    now[0] = 61.0
    assert cache.find(PICTURE, "new", lambda: 0.0) is None


def test_it_never_takes_more_than_it_may(cache):
    for i in range(100):
        cache.put(PICTURE + bytes([i]), answer())
        assert cache.size_bytes <= 10_000
    assert 0 < len(cache) < 100
    tiny = AnswerCache(10, 60.0, lambda: 0.0)
    tiny.put(PICTURE, answer())
    assert len(tiny) == 0


def test_what_a_new_picture_could_get_is_not_worked_out(cache):
    def at_least():
        raise AssertionError("asked")

    cache.put(PICTURE, answer())
    assert cache.find(PICTURE + b"more", "b", at_least) is None


def test_where_the_key_of_hashes_is_known_pictures_are_told_apart_by_a_digest(monkeypatch):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    assert AnswerCache(10_000, 60.0, lambda: 0.0)._key(PICTURE) == hash(PICTURE)
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    cache = AnswerCache(10_000, 60.0, lambda: 0.0)
    assert cache._key(PICTURE) == hashlib.sha256(PICTURE).digest()
    cache.put(PICTURE, known := answer())
    assert cache.find(bytes(bytearray(PICTURE)), "b", lambda: 0.0) is known
