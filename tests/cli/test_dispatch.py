"""The ``san`` dispatcher: laziness, exit codes, one sentence per error."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import pytest

from san_cli.__main__ import COMMANDS, Command, dispatch, version
from san_core.errors import SanError

Run = Callable[[argparse.Namespace], int]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], dict[str, Command]]:
    """Make a one-command table whose command runs the given function."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("words", nargs="*")
        parser.add_argument("--shout", action="store_true")

    def install(run: Run) -> dict[str, Command]:
        module = ModuleType("fake_command")
        module.HELP = "Say words, in a fake way."  # type: ignore[attr-defined]
        module.add_arguments = add_arguments  # type: ignore[attr-defined]
        module.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "fake_command", module)
        return {"say": Command("fake_command", "Say words.")}

    return install


def run_san(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "san_cli", *arguments], capture_output=True, text=True, check=False
    )


def test_arguments_reach_the_command_and_its_code_comes_back(install):
    seen = []

    def run(args: argparse.Namespace) -> int:
        seen.append((args.words, args.shout))
        return 7

    assert dispatch(["say", "--shout", "a", "b"], install(run)) == 7
    assert seen == [(["a", "b"], True)]


def test_our_error_is_one_sentence_on_stderr_and_code_2(install, capsys):
    def run(args: argparse.Namespace) -> int:
        raise SanError("The file is not a bundle; pass one.")

    assert dispatch(["say"], install(run)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "san say: The file is not a bundle; pass one.\n"


def test_an_error_that_is_not_ours_is_not_hidden(install):
    def run(args: argparse.Namespace) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        dispatch(["say"], install(run))


def test_a_refusal_of_the_system_is_one_sentence_too(install, capsys):
    def run(args: argparse.Namespace) -> int:
        raise PermissionError(13, "Permission denied", "/somewhere")

    assert dispatch(["say"], install(run)) == 2
    assert "Permission denied: '/somewhere'" in capsys.readouterr().err


@pytest.mark.parametrize(("module", "extra"), [("torch._C", "torch"), ("onnx", "export")])
def test_a_command_without_its_extra_says_how_to_get_it(install, capsys, module, extra):
    def run(args: argparse.Namespace) -> int:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    assert dispatch(["say"], install(run)) == 2
    wanted = f"san say: This needs {module}: pip install 'san-serve[{extra}]'.\n"
    assert capsys.readouterr().err == wanted


def test_a_module_of_our_own_that_is_missing_is_not_hidden(install):
    def run(args: argparse.Namespace) -> int:
        raise ModuleNotFoundError("No module named 'service.nothing'", name="service.nothing")

    with pytest.raises(ModuleNotFoundError):
        dispatch(["say"], install(run))


def test_every_command_has_a_place_in_the_help():
    assert all(command.group != "commands" for command in COMMANDS.values())


def test_interruption_is_code_130(install, capsys):
    def run(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    assert dispatch(["say"], install(run)) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_help_of_a_command_is_the_command_s_own(install, capsys):
    with pytest.raises(SystemExit) as exit_:
        dispatch(["say", "--help"], install(lambda args: 0))
    assert exit_.value.code == 0
    out = capsys.readouterr().out
    assert "san say" in out
    assert "Say words, in a fake way." in out
    assert "--shout" in out


def test_an_unknown_command_names_the_known_ones(install, capsys):
    with pytest.raises(SystemExit) as exit_:
        dispatch(["sing"], install(lambda args: 0))
    assert exit_.value.code == 2
    assert "say" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["sya"], "san: There is no command 'sya'; did you mean say?"),
        (["say", "--shuot"], "san say: There is no option --shuot; did you mean --shout?"),
        (["say", "--shuot=1"], "did you mean --shout?"),
    ],
)
def test_a_slip_is_told_what_was_meant_in_one_sentence(install, capsys, arguments, sentence):
    with pytest.raises(SystemExit) as exit_:
        dispatch(arguments, install(lambda args: 0))
    assert exit_.value.code == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.err.count("\n") == 1


def test_no_command_shows_the_help_and_fails(install, capsys):
    assert dispatch([], install(lambda args: 0)) == 2
    assert "Say words." in capsys.readouterr().out


def test_version_is_the_distribution_s():
    result = run_san("--version")
    assert result.returncode == 0
    assert result.stdout == f"san {version()}\n"


def test_help_lists_every_command_without_importing_torch():
    script = (
        "import sys, runpy\n"
        "sys.argv = ['san', '--help']\n"
        "try:\n"
        "    runpy.run_module('san_cli', run_name='__main__')\n"
        "except SystemExit as exit_:\n"
        "    assert exit_.code == 0, exit_.code\n"
        "heavy = {'torch', 'numpy', 'fastapi', 'pydantic', 'san_core'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    for name, command in COMMANDS.items():
        assert f"  {name} " in result.stdout
        assert command.help in result.stdout


def test_a_closed_pipe_ends_quietly():
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as closed_pipe:
        process = subprocess.run(
            [sys.executable, "-m", "san_cli"],
            stdout=closed_pipe,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert process.returncode == 141
    assert process.stderr == b""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_keeps_the_contract(name):
    module = import_module(COMMANDS[name].module)
    assert isinstance(module.HELP, str)
    assert module.HELP
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    assert parser.format_help()
    assert callable(module.run)
    assert f"san {name}" in module.EXAMPLES


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_has_a_word(name):
    parser = argparse.ArgumentParser()
    import_module(COMMANDS[name].module).add_arguments(parser)
    assert [action.dest for action in parser._actions if not action.help] == ["kind"] * (
        name == "report"
    )
