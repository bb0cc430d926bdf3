"""`san classify` with a budget, by the service's own pipeline."""

from __future__ import annotations

import json

import pytest

from san_cli.__main__ import COMMANDS, dispatch
from tests.service.conftest import picture, tiny_bundle

__all__ = ["tiny_bundle"]


def san(*arguments: object) -> int:
    return dispatch([str(argument) for argument in arguments], COMMANDS)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SAN_ENGINE", "torch")
    monkeypatch.setenv("SAN_CACHE_DIR", str(tmp_path / "cache"))
    photos = tmp_path / "photos"
    (photos / "more").mkdir(parents=True)
    (photos / "a.jpg").write_bytes(picture())
    (photos / "more" / "b.png").write_bytes(picture(image_format="PNG", seed=1))
    (photos / "notes.txt").write_text("no image")
    return photos


def test_a_folder_within_a_budget(tiny_bundle, folder, capsys):
    assert san("classify", tiny_bundle, folder, "--budget-ms", 50_000, "--json") == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["image"][-5:] for answer in answers] == ["a.jpg", "b.png"]
    for answer in answers:
        assert answer["budget"]["budget_ms"] == 50_000
        assert answer["budget"]["met"]
        assert answer["resolution"] == 96


def test_without_a_budget_the_most_accurate_point_answers(tiny_bundle, folder, capsys):
    assert san("classify", tiny_bundle, folder / "a.jpg", "--json", "--top-k", 3) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["resolution"], answer["budget"]["met"]) == (96, None)
    assert len(answer["predictions"]) == 3
    pinned = ("--resolution", 48, "--mode", "data_free")
    assert san("classify", tiny_bundle, folder / "a.jpg", *pinned) == 0
    assert "48 px (data_free, float)" in capsys.readouterr().out


def test_the_time_it_took_and_why(tiny_bundle, folder, capsys):
    (folder / "broken.jpg").write_bytes(b"no image")
    assert san("classify", tiny_bundle, folder, "--budget-ms", 50_000) == 1
    out, err = capsys.readouterr()
    assert "of 50000" in out
    assert "to spare" in out
    assert "most accurate" in out
    assert "broken.jpg: " in err


def test_a_file_that_is_not_there_is_named_before_anything_starts(tiny_bundle, capsys):
    assert san("classify", tiny_bundle, "nowhere.jpg") == 2
    assert capsys.readouterr().err == "san classify: There is no file nowhere.jpg.\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--budget-ms", 0], "--budget-ms must be more than 0"),
        (["--budget-ms", "-5"], "ms, not -5."),
        (["https://example.com/a.jpg"], "Images are read from files: download a.jpg first."),
        (["--resolution", 7], "outside 32 to 1024"),
        (["--top-k", 0], "--top-k is at least 1"),
    ],
)
def test_wrong_options_are_sentences(tiny_bundle, folder, capsys, arguments, sentence):
    assert san("classify", tiny_bundle, folder, *arguments) == 2
    assert sentence in capsys.readouterr().err


def test_a_folder_without_images(tiny_bundle, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert san("classify", tiny_bundle, tmp_path / "empty") == 2
    assert "There is no image in" in capsys.readouterr().err


def test_the_embedded_bundle_answers_every_format_it_should(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SAN_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("JPEG", "PNG", "WEBP", "GIF", "AVIF"):
        (tmp_path / f"a.{name.lower()}").write_bytes(picture(image_format=name))
    files = sorted(tmp_path.glob("a.*"))
    assert san("classify", *files, "--json") == 0, capsys.readouterr().err
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == len(files) == 5
