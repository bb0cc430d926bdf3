"""What the README shows must work as shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def test_the_library_example_classifies(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Image.effect_noise((200, 180), 80).convert("RGB").save("photo.jpg")
    (example,) = blocks("python")
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)
    assert capsys.readouterr().out.strip() in names["bundle"].manifest.classes


def test_its_figures_are_those_of_the_results():
    from benchmarks.reporting import document

    assert document.fill(README, document.README) == README
    front = document.FRONT.read_text(encoding="utf-8")
    assert document.fill(front, document.FRONT) == front


def test_its_other_figures_are_those_of_the_model_card():
    card = (ROOT / "docs" / "default_model.md").read_text(encoding="utf-8")
    method = README[README.index("## The method") : README.index("## More")]
    for page in (method, (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")):
        for figure in re.findall(r"(\d\d\.\d) %", page):
            assert figure in card, figure


def test_the_answer_it_shows_met_its_budget():
    assert len(blocks("json")) == 1
    for text in blocks("json"):
        budget = json.loads(text)["budget"]
        assert budget["met"]
        assert budget["spent_ms"] <= budget["budget_ms"]
    assert '"met": false' not in README


def test_the_make_targets_it_names_exist():
    named = set(re.findall(r"\bmake ([a-z-]+)", "\n".join([*blocks("sh"), README])))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    assert named
    assert named <= targets


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_its_links_lead_somewhere(link):
    assert (ROOT / link).exists()
