"""What argparse says, in sentences."""

from __future__ import annotations

import pytest

from san_cli.parser import Parser
from san_core.mode import Mode


@pytest.fixture
def parser() -> Parser:
    made = Parser(prog="san say")
    made.add_argument("words", nargs="+", metavar="WORD")
    made.add_argument("--loudness", type=float)
    made.add_argument("--times", "-n", type=int)
    made.add_argument("--mode", type=Mode, choices=list(Mode))
    made.add_argument("--precision", choices=("float", "int8"))
    either = made.add_mutually_exclusive_group()
    either.add_argument("--high", action="store_true")
    either.add_argument("--low", action="store_true")
    return made


def test_a_choice_that_was_not_made_is_one_sentence(capsys):
    parser = Parser(prog="san say")
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("-o", "--output")
    either.add_argument("--in-place", action="store_true")
    with pytest.raises(SystemExit):
        parser.parse_args([])
    wanted = "san say: One of these is needed: -o/--output, --in-place. See `san say --help`.\n"
    assert capsys.readouterr().err == wanted


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a", "--loudness", "x"], "--loudness must be a number, not 'x'."),
        (["a", "-n", "1.5"], "--times/-n must be a whole number, not '1.5'."),
        (["a", "--times"], "--times/-n needs a value."),
        (["a", "--mode", "m"], "--mode must be one of proxy, ideal, data_free, not 'm'."),
        (["a", "--precision", "int4"], "--precision must be one of float, int8, not 'int4'."),
        ([], "Something is missing: WORD."),
        (["a", "--high", "--low"], "--low: not allowed with argument --high."),
        (["a", "--bundle", "b"], "A bundle needs no option: name it right after `san say`."),
        (["a", "--hihg"], "There is no option --hihg; did you mean --high?"),
    ],
)
def test_a_mistake_is_one_sentence(parser, capsys, arguments, sentence):
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"san say: {sentence} See `san say --help`.\n"
