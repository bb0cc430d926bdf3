import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.request.answer import share, top_k


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=50), st.integers(1, 60))
def test_top_k_is_the_head_of_the_sorted_list(values, k):
    scores = np.array(values, dtype=np.float32)
    found = top_k(scores, tuple(str(i) for i in range(len(values))), k)
    assert len(found) == min(k, len(values))
    assert [p.score for p in found] == sorted(scores.tolist(), reverse=True)[: len(found)]
    assert len({p.index for p in found}) == len(found)


def test_an_accuracy_is_told_without_digits_that_mean_nothing():
    assert share(0.7396718750000001) == 0.7397
    assert share(None) is None
