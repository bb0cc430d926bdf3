"""An argument parser that answers a mistake with one sentence and the cure."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

_FEW = 16
_ALIKE = 0.65
"""Similarity (difflib) from which a word counts as meant: "plan" is not "replay" (0.6)."""
_VALUE = re.compile(r"argument (\S+): (?:invalid (\w+) value|invalid choice): ('[^']*').*")
_NO_VALUE = re.compile(r"argument (\S+): expected .* arguments?")
_MISSING = re.compile(r"the following arguments are required: (.*)")
_ONE_OF = re.compile(r"one of the arguments (.*) is required")
_OTHER = re.compile(r"argument ([^:]+): (.*)", re.DOTALL)
"""What argparse says."""
_NUMBERS = {"int": "a whole number", "float": "a number"}


class Parser(argparse.ArgumentParser):
    """argparse, without a page of usage before each error."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse; name what was probably meant by an option that does not exist."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            option: str = next((x for x in unknown if x.startswith("-")), unknown[0]).partition(
                "="
            )[0]
            if option == "--bundle":
                self.error(f"A bundle needs no option: name it right after `{self.prog}`")
            if option.startswith("-"):
                known = [flag for flag in self._option_string_actions if flag.startswith("--")]
                self.error(f"There is no option {option}{suggestion(option, known)}")
            self.error(f"There is one argument too many: {option}.")
        return found

    def error(self, message: str) -> NoReturn:
        """Say it in a sentence, say where the options are explained, and end with code 2."""
        sentence = self._reworded(message)
        if sentence[-1] not in ".?":
            sentence += "."
        self.exit(2, f"{self.prog}: {sentence} See `{self.prog} --help`.\n")

    def _reworded(self, message: str) -> str:
        """What argparse says, as a sentence."""
        if found := _VALUE.fullmatch(message):
            option, kind, value = found.groups()
            action = self._option_string_actions.get(option.rpartition("/")[-1])
            wanted = _NUMBERS.get(kind, "something else")
            if action is not None and action.choices:
                wanted = f"one of {', '.join(map(str, action.choices))}"
            return f"{option} must be {wanted}, not {value}"
        if found := _NO_VALUE.fullmatch(message):
            return f"{found[1]} needs a value"
        if found := _MISSING.fullmatch(message):
            return f"Something is missing: {found[1]}"
        if found := _ONE_OF.fullmatch(message):
            return f"One of these is needed: {', '.join(found[1].split())}"
        if found := _OTHER.fullmatch(message):
            return f"{found[1]}: {found[2]}"
        return message[:1].upper() + message[1:]


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: what was probably meant, or what is known."""
    words = list(known)
    close = difflib.get_close_matches(word, words, n=1, cutoff=_ALIKE)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known are {', '.join(words)}." if len(words) <= _FEW else "."
