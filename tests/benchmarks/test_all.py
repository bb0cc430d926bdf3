import argparse
import sys
from pathlib import Path

import pytest

from benchmarks import all as every
from benchmarks.reporting.options import parser, report


@pytest.fixture
def ran(monkeypatch):
    """What would have been started, and within what time."""
    found = {}

    def run(name, arguments, seconds):
        found[name] = (arguments, seconds)
        return ""

    monkeypatch.setattr(every, "run", run)
    return found


def start(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["all", *words])
    assert every.main() == 0


def test_labelled_images_go_to_the_one_that_knows_what_to_do_with_them(ran, monkeypatch):
    start(monkeypatch, "--quick", "--data", "photos", "--bundle", "mine", "--only", "decode,load")
    usual = ["--quick", "--bundle", "mine"]
    assert ran["decode"] == ([*usual, "--data", "photos"], None)
    assert ran["load"][0] == usual
    assert ran["load"][1] is not None


def test_without_images_nothing_is_said_about_them(ran, monkeypatch):
    start(monkeypatch, "--quick")
    assert list(ran) == list(every.ORDER)
    assert all(arguments == ["--quick"] for arguments, _ in ran.values())


def test_a_report_does_not_tell_where_things_lie_on_this_machine(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["decode", "--data", "/some/where/photos/", "--quick"])
    options = parser("")
    options.add_argument("--data", type=Path)
    made = report("decode", "Decode", options.parse_args())
    assert made.command == "python -m benchmarks.decode --data photos/ --quick"
    assert made.settings == {"bundle": "None", "quick": "True", "data": "photos"}


def test_a_path_that_is_not_absolute_stays(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["decode"])
    made = report("decode", "Decode", argparse.Namespace(quick=False, data=Path("a/b")))
    assert made.settings["data"] == "a/b"
