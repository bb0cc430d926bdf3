import logging

from service.observability.logs import TextFormatter


def test_a_line_of_text_tells_the_facts_too():
    line = logging.makeLogRecord({"msg": "classify", "levelname": "INFO"})
    line.facts = {"status": 422, "met": False, "reason": "No point\nfits."}
    text = TextFormatter(worker=3).format(line)
    assert text.endswith(r"INFO    [3] classify status=422 met=False reason='No point\nfits.'")
    assert TextFormatter().format(logging.makeLogRecord({"msg": "ready"})).endswith(" ready")
