import json
import logging
from types import SimpleNamespace

import pytest

from service.observability import logs
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


def test_a_warning_of_the_server_is_written_once_a_second(monkeypatch, capsys):
    now = [100.0]
    root = logging.getLogger()
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(logging, "captureWarnings", lambda _: None)
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    logs.configure("info", "text")
    server = logging.getLogger("uvicorn.error")
    for _ in range(1000):
        server.warning("Invalid HTTP request received.")
        server.warning("Something else.")
    server.error("a fault")
    server.error("a fault")
    now[0] += 1
    server.warning("Invalid HTTP request received.")
    said = capsys.readouterr().err
    assert said.count("Invalid HTTP") == 2
    assert said.count("Something else") == 1
    assert said.count("a fault") == 2
