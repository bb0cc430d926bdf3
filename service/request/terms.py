"""What a client asks for, parsed strictly from query parameters and headers.

By hand and not by pydantic: this is on the path of every request, and the sentences can name what
would have worked.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn, TypeVar, get_args

from san_core.errors import ResolutionError
from san_core.frontier import Precision
from san_core.mode import Mode
from san_core.resolution import check_resolution
from service.errors import ParameterError

T = TypeVar("T", bound=str)
MAX_BUDGET_MS = 600_000.0
MAX_TOP_K = 1000
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
PARAMETERS = ("budget_ms", "resolution", "mode", "precision", "min_accuracy", "top_k", "on_miss")


class OnMiss(StrEnum):
    """What to do if the budget cannot be met."""

    ANSWER = "answer"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one request."""

    budget_ms: float | None = None
    resolution: int | None = None
    mode: Mode | None = None
    min_accuracy: float | None = None
    top_k: int = 5
    on_miss: OnMiss = OnMiss.ANSWER
    precision: Precision | None = None
    priority: int = 0
    """Smaller goes first; the Open Inference Protocol's parameter, 0 for everyone else."""


def parse_terms(
    query: Iterable[tuple[str, str]],
    budget_header: str | None = None,
    others: tuple[str, ...] = (),
) -> Terms:
    """Read the terms; the query's `budget_ms` goes before the header's.

    `others` are parameters of the route that are no terms; the caller has read them.

    Raises ParameterError for anything unknown: a misspelt `budget` that is silently ignored would
    cost the client the very thing it asked for.
    """
    given: dict[str, str] = {}
    for name, value in query:
        if name not in PARAMETERS:
            if name in others:
                continue
            _unknown(name, (*PARAMETERS, *others))
        if name in given:
            raise ParameterError(f"{name} is given more than once.", name)
        given[name] = value
    budget, source = given.get("budget_ms"), "budget_ms"
    if budget is None:
        budget, source = budget_header, "X-Budget-Ms"
    return Terms(
        budget_ms=None if budget is None else parse_budget(budget, source),
        resolution=_resolution(given["resolution"]) if "resolution" in given else None,
        mode=_one_of(Mode, given["mode"], "mode") if "mode" in given else None,
        precision=_one_of(PRECISIONS, given["precision"], "precision")
        if "precision" in given
        else None,
        min_accuracy=_accuracy(given["min_accuracy"]) if "min_accuracy" in given else None,
        top_k=_top_k(given.get("top_k", "5")),
        on_miss=_one_of(OnMiss, given.get("on_miss", "answer"), "on_miss"),
    )


def parse_budget(text: str, source: str = "budget_ms") -> float:
    """A positive number of milliseconds, at most ten minutes."""
    value = _number(text, source)
    if not 0 < value <= MAX_BUDGET_MS:
        raise ParameterError(
            f"{source} must be more than 0 and at most {MAX_BUDGET_MS:.0f} ms, not {text[:40]}.",
            source,
        )
    return value


def _number(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    # float() also takes "1_0", "nan" and "infinity"; none of them is a number a client means.
    if not math.isfinite(value) or "_" in text:
        raise ParameterError(f"{name} must be a number, not {text[:40]!r}.", name)
    return value


def whole_number(text: str, name: str, kind: str = "") -> int:
    """A number without sign or point; `kind` says more of it in the refusal."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ParameterError(f"{name} must be a whole number{kind}, not {text[:40]!r}.", name)
    return int(text)


def _resolution(text: str) -> int:
    try:
        return check_resolution(whole_number(text, "resolution", " of pixels"))
    except ResolutionError as error:
        raise ParameterError(str(error), "resolution") from error


def _one_of(choices: Iterable[T], text: str, name: str) -> T:
    known = tuple(choices)
    for choice in known:
        if text == choice:
            return choice
    raise ParameterError(f"{name} must be one of {', '.join(known)}, not {text[:40]!r}.", name)


def _accuracy(text: str) -> float:
    value = _number(text, "min_accuracy")
    if not 0 <= value <= 1:
        raise ParameterError(
            f"min_accuracy must be between 0 and 1, not {text[:40]}.", "min_accuracy"
        )
    return value


def _top_k(text: str) -> int:
    allowed = f" from 1 to {MAX_TOP_K}"
    count = whole_number(text, "top_k", allowed)
    if not 1 <= count <= MAX_TOP_K:
        raise ParameterError(f"top_k must be a whole number{allowed}, not {count}.", "top_k")
    return count


def _unknown(name: str, known: tuple[str, ...]) -> NoReturn:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}."
    raise ParameterError(f"There is no parameter {name[:40]!r}; {hint}", name[:40])
