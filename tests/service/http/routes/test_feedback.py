"""A body that says nothing about a request is told what to send."""

import pytest

from service.errors import ParameterError
from service.http.routes.feedback import read_feedback


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "body is not valid JSON. Send JSON as "),
        (b"[1]", "body must be an object. Send JSON as "),
        (b"{}", "request_id is missing. Send JSON as "),
        (b'{"request_id": ""}', "request_id is too short. "),
        (b'{"request_id": "' + 65 * b"a" + b'"}', "request_id is longer than 64 characters. "),
        (b'{"request_id": "a", "label": 3}', "label must be a string, not 3. "),
        (b'{"request_id": "a", "index": "x"}', "index must be a whole number, not 'x'. "),
        (b'{"request_id": "a", "indx": 1}', "indx is not known here. "),
    ],
)
def test_a_wrong_body_is_a_sentence_with_the_cure(body, sentence):
    with pytest.raises(ParameterError) as caught:
        read_feedback(body)
    assert str(caught.value).startswith(sentence)
    assert str(caught.value).endswith('or {"request_id": "…", "index": 207}.')
