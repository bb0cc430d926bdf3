import json
import re

import pytest

from benchmarks.peers.registry import HERE, PEERS, select
from benchmarks.reporting import document
from benchmarks.reporting.results import Check, Report, ratio, summarise


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.reporting.results.RESULTS", tmp_path)
    monkeypatch.setattr(document, "RESULTS", tmp_path)
    monkeypatch.setattr(document, "ROOT", tmp_path)
    return tmp_path


def test_the_page_gets_what_was_measured_and_keeps_what_was_written(results):
    report = Report("load", "Under load", "python -m benchmarks.load")
    report.say("Some words.")
    report.check(Check("goodput", 2.7, ">=", 2.5, "x"))
    report.check(Check("overhead", 1.4, "<=", 1.25))
    report.write()
    page = (
        "Mine.\n<!-- results:load -->\nof yesterday\n<!-- end:load -->\n"
        "<!-- results:summary -->\n<!-- end:summary -->\n"
    )
    made = document.fill(page, results / "docs" / "performance.md")
    assert made.startswith("Mine.\n<!-- results:load -->\n")
    assert "Some words." in made
    assert "of yesterday" not in made
    assert "| goodput | 2.7x | ≥ 2.5x | yes | `load` |" in made
    assert "| overhead | 1.4 | ≤ 1.25 | **no** | `load` |" in made
    assert document.fill(made, results / "docs" / "performance.md") == made


def test_a_quick_run_leaves_the_figures_alone(results, tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.reporting.results.QUICK", tmp_path / "quick")
    path = Report("load", "Under load", "x", quick=True).write()
    assert path.parent == tmp_path / "quick"
    assert not list(results.glob("*.json"))
    assert json.loads(path.with_suffix(".json").read_text())["quick"] is True


def test_the_real_page_has_a_place_for_each_benchmark():
    text = document.DOCUMENT.read_text()
    for name in ("machine", "summary", "budgets", "end_to_end", "load", "overhead"):
        assert f"<!-- results:{name} -->" in text
        assert f"<!-- end:{name} -->" in text


def test_what_is_written_by_hand_on_the_real_page_outlives_new_results(results):
    text = document.DOCUMENT.read_text()
    Report("budgets", "Budgets", "x").write()
    made = document.fill(text, results / "docs" / "performance.md")
    assert made != text

    def by_hand(page: str) -> str:
        return re.sub(r"(<!-- results:(\w+) -->).*?(<!-- end:\2 -->)", r"\1\3", page, flags=re.S)

    assert by_hand(made) == by_hand(text)
    assert "\n## What is not reached, and why\n" in by_hand(made)


def test_what_is_no_number_is_still_json(results):
    report = Report(
        "load", "Under load", "x", data={"recovery": [float("inf"), {"a": float("nan")}]}
    )
    text = report.write().with_suffix(".json").read_text()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found["recovery"] == [None, {"a": None}]


def test_ratios_are_taken_round_by_round():
    assert ratio([[2, 2, 2], [6, 6, 6], [4]], [[1, 1, 1], [2, 2, 2], [2]]) == [2.0, 2.0, 3.0]
    summary = summarise([[1, 2, 3], [5, 6, 7]])
    assert (summary.low, summary.high, summary.n, summary.p50) == (2.0, 6.0, 6, 4.0)


def test_every_peer_has_its_service():
    assert {peer.name for peer in PEERS} == {
        "fastapi",
        "mosec",
        "litserve",
        "bentoml",
        "mlserver",
        "ray",
    }
    assert all((HERE / f"{peer.name}_service.py").exists() for peer in PEERS)
    assert [peer.name for peer in select("ray, fastapi")] == ["ray", "fastapi"]
    with pytest.raises(SystemExit, match="No peer 'torchserve'"):
        select("torchserve")
