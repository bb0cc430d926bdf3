import pytest

from san_cli.__main__ import COMMANDS, dispatch


def test_it_prints_a_row_per_policy(capsys):
    policies = ("san-serve", "fixed")
    given = [word for name in policies for word in ("--policy", name)]
    asked = ["replay", "poisson-1", "--seconds", "0.5", "--cores", "4", *given]
    assert dispatch(asked, COMMANDS) == 0
    shown = capsys.readouterr().out
    assert "accuracy/offered" in shown
    assert all(shown.count(name) == 2 for name in policies)


@pytest.mark.parametrize("given", [["poison-1"], ["poisson-1", "--policy", "luck"]])
def test_what_is_not_known_is_one_sentence(given, capsys):
    assert dispatch(["replay", *given], COMMANDS) == 2
    assert "known are" in capsys.readouterr().err


def test_a_file_that_is_missing_or_has_no_times_is_one_sentence(tmp_path, capsys):
    assert dispatch(["replay", "traffic.jsonl"], COMMANDS) == 2
    assert capsys.readouterr().err == "san replay: There is no recording traffic.jsonl.\n"
    empty = tmp_path / "latency.json"
    empty.write_text('{"forward": [], "decode": {}, "build_ms": {}}')
    assert dispatch(["replay", "poisson-1", "--host", str(empty)], COMMANDS) == 2
    assert "has no times" in capsys.readouterr().err
