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
