"""Command-line options made from the fields of a pydantic model, by pydantic-settings."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel
from pydantic_settings import CliSettingsSource

_SOURCE = "_fields"
_WORDS = {"Path": "PATH", "int": "N", "float": "X", "str": "TEXT"}
"""By type: what stands for a value in the help."""


_WANTED = {
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_type": "must be a whole number",
    "string_type": "must be a string",
    "float_parsing": "must be a number",
    "bool_parsing": "must be true or false",
    "less_than_equal": "must be at most {le}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "greater_than": "must be more than {gt}",
    "literal_error": "must be one of {expected}",
    "enum": "must be one of {expected}",
}
"""By pydantic's kind of error: the same in words of ours."""
_WHOLE = {
    "missing": "is missing",
    "extra_forbidden": "is not known here",
    "json_invalid": "is not valid JSON",
    "model_type": "must be an object",
    "string_too_short": "is too short",
    "string_too_long": "is longer than {max_length} characters",
}
"""The same, where the value adds nothing."""


def what_is_wrong(error: Mapping[str, Any]) -> str:
    """The end of a sentence about a value that pydantic refused."""
    if (whole := _WHOLE.get(error["type"])) is not None:
        return whole.format(**error.get("ctx", {}))
    said = _WANTED.get(error["type"])
    if said is None:
        return f"cannot be {error['input']!r}: {error['msg']}"
    wanted = said.format(**error.get("ctx", {})).replace("'", "").replace(" or ", ", ")
    return f"{wanted}, not {error['input']!r}"


def add_fields(
    parser: argparse.ArgumentParser,
    model: type[BaseModel],
    *,
    groups: Mapping[str, str],
    without: Collection[str] = (),
    env_prefix: str | None = None,
) -> None:
    """Add one option per field of `model`, except those in `without`.

    `groups` maps the first field of each group to the group's title. With `env_prefix` the help
    also names the environment variable of each field.
    """
    titles = iter(model.model_fields)
    heading: dict[str, argparse._ArgumentGroup | argparse.ArgumentParser] = {}
    current: argparse._ArgumentGroup | argparse.ArgumentParser = parser
    for name in titles:
        if name in groups:
            current = parser.add_argument_group(groups[name])
        heading[name] = current

    def add(_: argparse.ArgumentParser, *flags: str, **options: Any) -> None:
        name = options["dest"]
        if name in without:
            return
        field = model.model_fields[name]
        notes = [f"default: {_shown(field.default)}"]
        if "by default" in str(field.description):
            notes = []
        if env_prefix is not None:
            notes.append(f"{env_prefix}{name.upper()}")
        text = f"{field.description} ({'; '.join(notes)})" if notes else str(field.description)
        changed = {"help": text.replace("%", "%%")}
        if kind := options.get("metavar"):
            changed["metavar"] = "A,B" if kind.startswith("tuple") else _WORDS.get(kind, kind)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Enum):
            changed["metavar"] = f"{{{','.join(str(x.value) for x in field.annotation)}}}"
        heading[name].add_argument(*flags, **{**options, **changed})

    parser.allow_abbrev = False  # an option must not pass for a longer one that it begins
    source: CliSettingsSource[Any] = CliSettingsSource(
        model,  # type: ignore[arg-type]  # any pydantic model will do
        root_parser=parser,
        add_argument_method=add,
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        case_sensitive=True,
    )
    parser.set_defaults(**{_SOURCE: source})


def _shown(default: object) -> str:
    """A default as one would type it."""
    match default:
        case None | () | "":
            return "none"
        case bool():
            return "on" if default else "off"
        case tuple():
            return ",".join(map(str, default))
        case float():
            return f"{default:g}"
    return str(default)


def given_fields(args: argparse.Namespace) -> dict[str, Any]:
    """The fields that were given on the command line; the model checks their values.

    Of an option that is given twice the last one counts, also where its field is a list.
    """
    source: CliSettingsSource[Any] = getattr(args, _SOURCE)
    fields = source.settings_cls.model_fields
    given = {
        name: value[-1:] if isinstance(value, list) and name in fields else value
        for name, value in vars(args).items()
    }
    return dict(source(parsed_args=argparse.Namespace(**given))())
