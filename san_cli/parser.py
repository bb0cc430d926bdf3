"""An argument parser that answers a mistake with one sentence and the cure."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

_FEW = 16


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
            option = next((x for x in unknown if x.startswith("-")), unknown[0]).partition("=")[0]
            if option.startswith("-"):
                known = [flag for flag in self._option_string_actions if flag.startswith("--")]
                self.error(f"There is no option {option}{suggestion(option, known)}")
            self.error(f"There is one argument too many: {option}.")
        return found

    def error(self, message: str) -> NoReturn:
        """Say it in a sentence, say where the options are explained, and end with code 2."""
        sentence = message[:1].upper() + message[1:]
        if sentence[-1] not in ".?":
            sentence += "."
        self.exit(2, f"{self.prog}: {sentence} See `{self.prog} --help`.\n")


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: what was probably meant, or what is known."""
    words = list(known)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known are {', '.join(words)}." if len(words) <= _FEW else "."
