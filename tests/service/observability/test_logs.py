import json
import logging

import pytest

from service.observability.logs import JsonFormatter, TextFormatter


def test_a_line_of_text_tells_the_facts_too():
    line = logging.makeLogRecord({"msg": "classify", "levelname": "INFO"})
    line.facts = {"status": 422, "met": False, "reason": "No point\nfits."}
    text = TextFormatter(worker=3).format(line)
    assert text.endswith(r"INFO    [3] classify status=422 met=False reason='No point\nfits.'")
    assert TextFormatter().format(logging.makeLogRecord({"msg": "ready"})).endswith(" ready")


@pytest.mark.parametrize(
    ("progress", "facts"),
    [
        ((1, 4), {"done": 1, "of": 4}),
        ((1, 4, 1.2), {"done": 1, "of": 4, "seconds_left": 1.2}),
        ((1, 4, None), {"done": 1, "of": 4, "seconds_left": None}),
    ],
)
def test_a_line_of_json_tells_how_far_something_is(progress, facts):
    line = logging.makeLogRecord({"msg": "building", "progress": progress})
    entry = json.loads(JsonFormatter().format(line))
    assert {name: entry[name] for name in entry if name in ("done", "of", "seconds_left")} == facts
