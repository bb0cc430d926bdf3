"""Recipes written back as TOML, so that a run's own recipe can be used again."""

import json
from collections.abc import Mapping
from typing import Any


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    return json.dumps(value)  # the same as TOML for strings, numbers and booleans


def dump_toml(fields: Mapping[str, Any]) -> str:
    """Write flat fields as TOML."""
    return "".join(f"{name} = {_value(value)}\n" for name, value in fields.items())
